"""The output of matches: one row per match or all rows of each match, with the measures' values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.match.calls import Classifier, MatchAggregate, MatchCall, MatchNumber, Navigation
from rowkind.operators.match.search import PatternMatch

CallColumn = Sequence[Any] | Indices
"""A call's value for each row.

For a navigation, the value is the number of the row to which the navigation refers, or -1 if that row does not exist.
"""


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The rows of matches, one match after the other: each row's number, variable and match.

    `first` and `last` are the positions of each match's first and last rows; `number` is each match's number.
    """

    row: Indices
    variable: Int64s
    match: Indices
    first: Indices
    last: Indices
    number: Int64s

    @classmethod
    def of(cls, matches: Sequence[PatternMatch], number: Int64s) -> MatchedRows:
        """Return the rows of the matches; `number` contains the matches' numbers."""
        sizes = np.array([len(each.variables) for each in matches], np.int64)
        stops = np.cumsum(sizes)
        match = np.repeat(np.arange(len(matches)), sizes)
        start = np.array([each.start for each in matches], np.int64)
        first = stops - sizes
        row = np.arange(len(match)) - first[match] + start[match]
        variable = np.array([name for each in matches for name in each.variables], np.int64)
        return cls(row, variable, match, first, stops - 1, number)

    def call(self, call: MatchCall, places: Indices, values: Callable[[str], Sequence[Any]]) -> CallColumn:
        """Evaluate a call at the positions `places`.

        The call is evaluated over the match up to each position or, if it is final, over the whole match.
        """
        own = self.last[self.match[places]] if call.final else places
        match call:
            case Navigation():
                return self._navigated(call, own)
            case MatchAggregate():
                return [call.result(each) for each in self._so_far(call, own, values)]
            case Classifier():
                return [call.names[variable] for variable in self.variable[own].tolist()]
            case MatchNumber():
                numbers: Indices = self.number[self.match[own]]
                return numbers

    def misfits(self, call: MatchAggregate, places: Indices, values: Callable[[str], Sequence[Any]]) -> Mask:
        """Return a mask of the positions at which an aggregate's result does not fit its type."""
        own = self.last[self.match[places]] if call.final else places
        so_far = self._so_far(call, own, values)
        return np.array([each is not None and call.result(each) is None for each in so_far], np.bool_)

    def _of(self, variables: tuple[int, ...]) -> Mask:
        return np.isin(self.variable, variables) if variables else np.ones(len(self.row), np.bool_)

    def _navigated(self, call: Navigation, places: Indices) -> Indices:
        of_them = self._of(call.variables)
        rows, so_far = self.row[of_them], np.cumsum(of_them, dtype=np.int64)
        first = self.first[self.match[places]]
        before: Indices = so_far[first] - of_them[first]
        count: Indices = so_far[places] - before
        at: Indices = before + (call.offset if call.first else count - 1 - call.offset)
        there: Mask = call.offset < count
        found = np.full(len(places), -1)
        found[there] = rows[at[there]]
        return found

    def _so_far(self, call: MatchAggregate, places: Indices, values: Callable[[str], Sequence[Any]]) -> list[Any]:
        """Return an aggregate's state over the match up to each of the positions `places`."""
        column = None if call.column is None else values(call.column)
        wanted = dict.fromkeys(places.tolist())
        counts, begins = self._of(call.variables).tolist(), set(self.first.tolist())
        found: dict[int, Any] = {}
        so_far: Any = None
        for place, row in enumerate(self.row.tolist()):
            if place in begins:
                so_far = None
            if counts[place]:
                so_far = call.add(so_far, True if column is None else column[row])
            if place in wanted:
                found[place] = so_far
        return [found[place] for place in places.tolist()]
