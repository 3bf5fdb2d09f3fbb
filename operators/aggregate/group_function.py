"""Aggregate functions that somebody else computes, group by group: add rows, retract rows, merge, give the result.

The function has a state for each group, of which nothing is known here but its bytes, and views beside it
(`operators.aggregate.group_views`). The result is kept with the state: the row that a group has given out must be taken
back as it was. Rows that come are added before others are retracted, so that what a batch replaces is never missing
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.group_views import GroupViews, ViewCodec
from rowkind.operators.columns.changes import Indices, Int64s, Mask, binary
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column
from rowkind.operators.errors import RowFailed


class GroupFunction(Protocol):
    """A function of the rows of a group; it pickles. What fails raises ValueError with one line."""

    @property
    def views(self) -> Sequence[ViewCodec]:
        """How its views are written."""

    def create(self) -> Any:
        """The state of a group without rows."""

    def load(self, packed: pa.BinaryArray) -> list[Any]:
        """States from their bytes."""

    def save(self, states: Sequence[Any]) -> pa.BinaryArray:
        """Their bytes."""

    def add(self, state: Any, rows: pa.StructArray, views: Views) -> Any:
        """The state with the arguments of these rows added."""

    def retract(self, state: Any, rows: pa.StructArray, views: Views) -> Any:
        """The state without them."""

    def merge(self, state: Any, other: Any) -> Any:
        """The state of the rows of two states."""

    def result(self, state: Any, views: Views) -> Any:
        """The result of a group."""

    def pack(self, results: Sequence[Any]) -> pa.BinaryArray:
        """Results as bytes, any of which may be None."""

    def unpack(self, packed: pa.BinaryArray) -> pa.Array:
        """And back, as the column that they are."""


@dataclass(frozen=True, slots=True)
class Views:
    """The views of one function in one group; None where there are none."""

    of: GroupViews | None
    group: int
    first: int


@dataclass(frozen=True, slots=True)
class CustomRows:
    """Single rows: their arguments, and which of them count."""

    arguments: pa.StructArray
    counted: Mask


@dataclass(frozen=True, slots=True)
class CustomPart:
    """States and results of groups, both as bytes."""

    states: pa.BinaryArray
    results: pa.BinaryArray


CustomPiece = tuple[CustomRows | CustomPart, Indices, Int64s]


@dataclass(frozen=True, slots=True)
class Custom:
    """What a function keeps, as an accumulator of `operators.aggregate.accumulators`."""

    function: GroupFunction
    kinds: str = "bb"

    def lift(self, values: pa.Array | None, counted: Mask) -> CustomRows:
        """Rows as they are; those whose arguments are null do not count."""
        assert isinstance(values, pa.StructArray), "a function has one argument at least"
        there = counted & to_mask(values.is_valid()) if values.null_count else counted
        return CustomRows(values, there)

    def total(self, pieces: Sequence[CustomPiece], count: int) -> CustomPart:
        """Rows that come, added up before they are shuffled: states without results."""
        everything = np.ones(count, np.bool_)
        return self.after(None, pieces, everything, lambda group: Views(None, group, 0))

    def after(
        self,
        stored: CustomPiece | None,
        pieces: Sequence[CustomPiece],
        alive: Mask,
        views: Callable[[int], Views],
    ) -> CustomPart:
        """The groups that are `stored` after all pieces; what is not `alive` is asked nothing, and is empty.

        Where nothing can be stored, because these are not the groups but what a task has of them, there are no results.
        Raises RowFailed.
        """
        function, count = self.function, len(alive)
        states: dict[int, Any] = {}
        before: dict[int, bytes] = {}
        touched = np.zeros(count, np.bool_)
        if stored is not None:
            part, group, _ = stored
            assert isinstance(part, CustomPart), "what is stored is a part"
            states = dict(zip(group.tolist(), function.load(part.states), strict=True))
            before = dict(zip(group.tolist(), part.results.to_pylist(), strict=True))
        for part, group, sign in pieces:
            if isinstance(part, CustomRows):
                self._rows(part, group, sign, alive, (states, touched, views))
            else:
                assert (sign > 0).all(), "what is added up has no rows that go"
                self._sums(part, group, states)
                touched[group] = True
        nothing = function.pack([None])[0].as_py()
        given: list[bytes] = []
        computed: list[int] = []
        for of in range(count):
            given.append(before.get(of, nothing))
            if not alive[of]:
                states[of] = None
            elif of not in states or touched[of] or of not in before:
                states.setdefault(of, function.create())
                computed.append(of)
        try:
            if stored is not None and computed:
                packed = function.pack([function.result(states[of], views(of)) for of in computed]).to_pylist()
                for of, result in zip(computed, packed, strict=True):
                    given[of] = result
            fresh = function.create() if not alive.all() else None
            saved = function.save([states[of] if alive[of] else fresh for of in range(count)])
        except ValueError as error:
            raise RowFailed(str(error), -1) from None
        return CustomPart(saved, binary(given))

    def to_columns(self, part: CustomPart) -> list[Column]:
        """The state, then the result."""
        return [part.states, part.results]

    def of_columns(self, columns: Sequence[Column]) -> CustomPart:
        """And back."""
        return CustomPart(*columns)

    def finish(self, part: CustomPart) -> pa.Array:
        """The results."""
        return self.function.unpack(part.results)

    def _sums(self, part: CustomPart, group: Indices, states: dict[int, Any]) -> None:
        for of, state in zip(group.tolist(), self.function.load(part.states), strict=True):
            try:
                states[of] = self.function.merge(states[of], state) if of in states else state
            except ValueError as error:
                raise RowFailed(str(error), -1) from None

    def _rows(
        self,
        part: CustomRows,
        group: Indices,
        sign: Int64s,
        alive: Mask,
        into: tuple[dict[int, Any], Mask, Callable[[int], Views]],
    ) -> None:
        states, touched, views = into
        rows = np.flatnonzero(part.counted & alive[group])
        order = rows[np.lexsort((rows, -sign[rows], group[rows]))]
        ends = np.flatnonzero(np.diff(group[order]) | np.diff(sign[order])) + 1
        for some in np.split(order, ends) if len(order) else ():
            of = int(group[some[0]])
            state = states[of] if of in states else self.function.create()
            change = self.function.add if sign[some[0]] > 0 else self.function.retract
            try:
                states[of] = change(state, part.arguments.take(pa.array(some)), views(of))
            except ValueError as error:
                raise RowFailed(str(error), self._failing(part, some, int(sign[some[0]]))) from None
            touched[of] = True

    def _failing(self, part: CustomRows, rows: Indices, sign: int) -> int:
        """The first of the rows on which the function fails for a group of this row alone, else the last of them."""
        if sign > 0:
            for row in rows.tolist():
                try:
                    self.function.add(self.function.create(), part.arguments.take(pa.array([row])), Views(None, 0, 0))
                except ValueError:
                    return int(row)
        return int(rows[-1])
