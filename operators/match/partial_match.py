"""The state of a partial match, as far as the conditions need it. It is updated as rows are added one by one.

If two ways to match the same rows lead to equal states, both continue identically. So the search also uses the state to
detect that it has been at the same point before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rowkind.operators.match.calls import MatchAggregate, Navigation

SoFar = tuple[Any, ...]
"""The state of a partial match. Each element is a tuple of row numbers or an aggregate's state."""

CallResults = tuple[Any, ...]
"""The values of a condition's calls: for a navigation, a row number or -1 for no row; for an aggregate, its result."""

ConditionCalls = tuple[Navigation | MatchAggregate, ...]


class PartialMatch:
    """The operations on the state of partial matches: initialize and update it, and evaluate the conditions' calls.

    There is one condition per variable. `values` takes a column's name and returns the column's values, by row number.
    """

    def __init__(self, conditions: Sequence[ConditionCalls], values: Callable[[str], Sequence[Any]]) -> None:
        self._values = values
        self._places: dict[object, int] = {}
        self._takes: list[list[tuple[int, Callable[[Any, int], Any]]]] = [[] for _ in conditions]
        self._begun: list[Any] = []
        self._reads: list[list[Callable[[SoFar], Any]]] = []
        depths: dict[object, int] = {}
        for call in (each for calls in conditions for each in calls):
            if isinstance(call, Navigation):
                depths[_rows(call)] = max(depths.get(_rows(call), 0), call.offset + 1)
        for calls in conditions:
            self._reads.append([self._read(call, depths) for call in calls])
        self.begun: SoFar = tuple(self._begun)

    def after(self, so_far: SoFar, variable: int, row: int) -> SoFar:
        """Return the state after a row has been assigned to a variable."""
        takes = self._takes[variable]
        if not takes:
            return so_far
        known = list(so_far)
        for place, take in takes:
            known[place] = take(known[place], row)
        return tuple(known)

    def arguments(self, variable: int, so_far: SoFar) -> CallResults:
        """Return the values of the calls in a variable's condition."""
        return tuple([read(so_far) for read in self._reads[variable]])

    def _read(self, call: Navigation | MatchAggregate, depths: dict[object, int]) -> Callable[[SoFar], Any]:
        if isinstance(call, MatchAggregate):
            counts: Sequence[Any] | None = None if call.column is None else self._values(call.column)

            def add(known: Any, row: int) -> Any:
                return call.add(known, True if counts is None else counts[row])

            place = self._place(call, call.variables, None, add)
            return lambda so_far: call.result(so_far[place])
        rows, offset = _rows(call), call.offset
        take = partial(_first if call.first else _last, depths[rows])
        place = self._place(rows, call.variables, (), take)

        def read(so_far: SoFar) -> int:
            known: tuple[int, ...] = so_far[place]
            return known[offset] if offset < len(known) else -1

        return read

    def _place(self, what: object, variables: tuple[int, ...], begun: Any, take: Callable[[Any, int], Any]) -> int:
        if what not in self._places:
            self._places[what] = len(self._begun)
            self._begun.append(begun)
            for variable, takes in enumerate(self._takes):
                if not variables or variable in variables:
                    takes.append((self._places[what], take))
        return self._places[what]


def _rows(call: Navigation) -> object:
    """Return a key for the rows that a navigation reads. Navigations with equal keys share one list of rows."""
    return call.first, call.variables


def _first(depth: int, known: tuple[int, ...], row: int) -> tuple[int, ...]:
    return known if len(known) == depth else (*known, row)


def _last(depth: int, known: tuple[int, ...], row: int) -> tuple[int, ...]:
    return (row, *known[: depth - 1])
