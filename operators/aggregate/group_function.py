"""User-defined aggregate functions. They add rows, retract rows, merge states and return the result, group by group.

A user-defined function has an opaque state per group, which is stored as bytes, and may have views
(`operators.aggregate.group_views`). The result is stored together with the state, because an emitted row must be
retracted exactly as it was emitted. A batch's insertions are applied before its retractions. If a batch replaces a row,
the group as the function sees it therefore always contains the old row or the new row.
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
    """A user-defined function of a group's rows.

    It must be picklable. If one of its methods fails, the method raises ValueError with a one-line message.
    """

    @property
    def views(self) -> Sequence[ViewCodec]:
        """The codecs of the function's views."""

    def create(self) -> Any:
        """Return the state of a group without rows."""

    def load(self, packed: pa.BinaryArray) -> list[Any]:
        """Deserialize states."""

    def save(self, states: Sequence[Any]) -> pa.BinaryArray:
        """Serialize states."""

    def add(self, state: Any, rows: pa.StructArray, views: Views) -> Any:
        """Return the state after adding these rows' arguments."""

    def retract(self, state: Any, rows: pa.StructArray, views: Views) -> Any:
        """Return the state after retracting these rows' arguments."""

    def merge(self, state: Any, other: Any) -> Any:
        """Return the state for the rows of two states combined."""

    def result(self, state: Any, views: Views) -> Any:
        """Return the result of a group."""

    def pack(self, results: Sequence[Any]) -> pa.BinaryArray:
        """Serialize results, any of which may be None."""

    def unpack(self, packed: pa.BinaryArray) -> pa.Array:
        """Deserialize results to an Arrow column."""


@dataclass(frozen=True, slots=True)
class Views:
    """One function's views in one group. They are numbered from `first`. If there are no views, `of` is None."""

    of: GroupViews | None
    group: int
    first: int


@dataclass(frozen=True, slots=True)
class CustomRows:
    """Single rows: the arguments of each row, and whether the row is aggregated."""

    arguments: pa.StructArray
    counted: Mask


@dataclass(frozen=True, slots=True)
class CustomPart:
    """Serialized states and serialized results of groups."""

    states: pa.BinaryArray
    results: pa.BinaryArray


CustomPiece = tuple[CustomRows | CustomPart, Indices, Int64s]


@dataclass(frozen=True, slots=True)
class Custom:
    """The state and result of a user-defined function, as an accumulator of `operators.aggregate.accumulators`."""

    function: GroupFunction
    kinds: str = "bb"

    def lift(self, values: pa.Array | None, counted: Mask) -> CustomRows:
        """Return the rows and whether each row is aggregated. Rows whose argument struct is null are not aggregated."""
        assert isinstance(values, pa.StructArray), "a function has at least one argument"
        there = counted & to_mask(values.is_valid()) if values.null_count else counted
        return CustomRows(values, there)

    def total(self, pieces: Sequence[CustomPiece], count: int) -> CustomPart:
        """Combine inserted rows into states without results, before the shuffle."""
        everything = np.ones(count, np.bool_)
        return self.after(None, pieces, everything, lambda group: Views(None, group, 0))

    def after(
        self,
        stored: CustomPiece | None,
        pieces: Sequence[CustomPiece],
        alive: Mask,
        views: Callable[[int], Views],
    ) -> CustomPart:
        """Return the `stored` groups after all pieces have been applied.

        For a group that is not `alive`, no rows are applied, and the group is given the state of a group without rows.
        If `stored` is None, the groups are a task's partial groups before the shuffle, and have no results. Raises
        RowFailed.
        """
        function, count = self.function, len(alive)
        states: dict[int, Any] = {}
        before: dict[int, bytes] = {}
        touched = np.zeros(count, np.bool_)
        if stored is not None:
            part, group, _ = stored
            assert isinstance(part, CustomPart), "stored groups must have states and results"
            states = dict(zip(group.tolist(), function.load(part.states), strict=True))
            before = dict(zip(group.tolist(), part.results.to_pylist(), strict=True))
        for part, group, sign in pieces:
            if isinstance(part, CustomRows):
                self._rows(part, group, sign, alive, (states, touched, views))
            else:
                assert (sign > 0).all(), "pre-aggregated rows are never retracted"
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
        """Return the state column, then the result column."""
        return [part.states, part.results]

    def of_columns(self, columns: Sequence[Column]) -> CustomPart:
        """Convert columns that `to_columns` returned back to the part."""
        return CustomPart(*columns)

    def finish(self, part: CustomPart) -> pa.Array:
        """Return the results."""
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
        """Find the row that made the function fail.

        Return the first inserted row for which `add` fails on an empty state. If there is none, return the last row.
        """
        if sign > 0:
            for row in rows.tolist():
                try:
                    self.function.add(self.function.create(), part.arguments.take(pa.array([row])), Views(None, 0, 0))
                except ValueError:
                    return int(row)
        return int(rows[-1])
