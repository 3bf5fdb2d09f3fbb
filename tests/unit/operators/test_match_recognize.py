"""The MATCH_RECOGNIZE operator: when matches are emitted, the rows kept until then, and its timers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.rowtime import END
from rowkind.operators.match.calls import MatchCall, MatchNumber, Navigation
from rowkind.operators.match.pattern import Pattern, PatternRepeat, PatternSequence, PatternVariable, Skip
from rowkind.operators.match.recognize import MatchRecognize, ReadableRows
from rowkind.operators.operator import Output
from tests.changelogs import Row, strong_hash, unpack
from tests.oracle.row_patterns import ID, UNIT, Condition, Sought
from tests.oracle.test_match_oracle import columns

A, B, C = map(PatternVariable, range(3))
MORE_B = PatternRepeat(B, 1, None)
FIRST, LAST = Navigation((), ID, first=True), Navigation((), ID)
SECOND = 1000 * 1000 // UNIT

_SMALL = Condition("{0}.v < 3", (), lambda value, _: value < 3)
_LARGE = Condition("{0}.v >= 3", (), lambda value, _: value >= 3)


class Running:
    """A pattern of large rows A, small rows B and large rows C, batch by batch; rows are (ID, partition, value)."""

    def __init__(
        self, pattern: Pattern, *, within: int | None = None, calls: tuple[MatchCall, ...] = (FIRST, LAST)
    ) -> None:
        self.operator = MatchRecognize(
            Sought(pattern, (_LARGE, _SMALL, _LARGE), Skip(), within, all_rows=False, calls=calls).spec
        )
        self.stores = {name: MemoryStore() for name in self.operator.arrangements}
        self.output: Output | None = None

    def batch(self, now: int, *rows: tuple[int, int, int, int]) -> list[Row]:
        """Process rows (ID, partition, value, time in ms) with the watermark at `now` ms; return the emitted rows."""
        arrived = [(each[0], (*each[:3], each[3] * 1000 // UNIT)) for each in rows]
        self.output = self.operator.process(columns(arrived, strong_hash), self.stores, now)
        return [unpack(each) for each in self.output.rows.payload.to_pylist()]

    @property
    def kept(self) -> int:
        """The number of rows in the state."""
        assert self.output is not None, "no batch was processed yet"
        return self.output.state.rows


def test_a_greedy_quantifier_waits_for_the_row_that_ends_it() -> None:
    """A match with a greedy quantifier is emitted once a row that does not belong to it has arrived."""
    running = Running(PatternSequence((A, MORE_B)))
    assert running.batch(5, (1, 1, 5, 1), (2, 1, 0, 2), (3, 1, 0, 3)) == []
    assert running.batch(6, (4, 1, 1, 6)) == []
    assert running.batch(9, (5, 1, 9, 8)) == [(1, 1, 4)]
    assert running.kept > 0, "the last row may begin another match"


def test_a_reluctant_quantifier_is_content_with_the_fewest() -> None:
    """A match with a reluctant quantifier is emitted with the first row that completes it."""
    running = Running(PatternSequence((A, PatternRepeat(B, 1, None, reluctant=True))))
    assert running.batch(2, (1, 1, 5, 1), (2, 1, 0, 2), (3, 1, 0, 3)) == [(1, 1, 2)]


def test_time_ends_what_no_row_ends() -> None:
    """With WITHIN, a greedy match is emitted when its time has passed, and the operator reports that time as due."""
    running = Running(PatternSequence((A, MORE_B)), within=10 * 1000)
    assert running.batch(5, (1, 1, 5, 1), (2, 1, 0, 2)) == []
    assert running.output is not None
    assert running.output.due == 11
    assert running.batch(10) == []
    assert running.batch(11) == [(1, 1, 2)]
    assert running.kept == 0


def test_a_row_at_the_end_of_the_time_is_too_late_for_the_match() -> None:
    """The rows of a match are less than the WITHIN time apart."""
    running = Running(PatternSequence((A, B)), within=10 * 1000)
    assert running.batch(20, (1, 1, 5, 1), (2, 1, 0, 11)) == []
    assert running.batch(40, (3, 1, 5, 21), (4, 1, 0, 30)) == [(1, 3, 4)]


def test_the_end_of_time_ends_everything() -> None:
    """At the end of the input, pending matches are emitted without further rows."""
    running = Running(PatternSequence((A, MORE_B)))
    assert running.batch(3, (1, 1, 5, 1), (2, 1, 0, 2), (3, 2, 5, 1), (4, 2, 0, 9)) == []
    assert sorted(running.batch(END)) == [(1, 1, 2), (2, 3, 4)]
    assert running.kept == 0


def test_rows_wait_for_those_that_may_come_before_them() -> None:
    """Rows are matched in the order of their times, not of arrival; equal times are in the order of arrival."""
    running = Running(PatternSequence((A, B, C)))
    assert running.batch(0, (1, 1, 7, 5), (2, 1, 0, 3)) == []
    assert running.batch(4, (3, 1, 9, 1)) == []
    assert running.batch(5, (4, 1, 8, 5)) == [(1, 3, 1)]


@pytest.mark.sampled(0)
@pytest.mark.parametrize("calls", [(FIRST,), (FIRST, MatchNumber())])
def test_state_is_what_the_time_within_holds(calls: Sequence[MatchCall]) -> None:
    """The state is limited to the rows within the WITHIN time, plus one match number per partition."""
    running = Running(PatternSequence((A, MORE_B, C)), within=20 * 1000, calls=tuple(calls))
    most, number, found = 0, 0, 0
    for step in range(400):
        rows = []
        for partition in range(5):
            number += 1
            rows.append((number, partition, (7 * number + step * step) % 6, 2 * step + partition % 2))
        found += len(running.batch(2 * step - 4, *rows))
        most = max(most, running.kept if step > 50 else 0)
    assert found > 100
    assert most < 400


def test_numbers_go_on_where_they_were() -> None:
    """Matches of a partition are numbered from 1, across batches and independently of other partitions."""
    running = Running(PatternSequence((A, B)), calls=(LAST, MatchNumber()))
    first = running.batch(9, (1, 1, 5, 1), (2, 1, 0, 2), (3, 2, 5, 1), (4, 2, 0, 2), (5, 1, 5, 3), (6, 1, 0, 4))
    assert sorted(first) == [(1, 2, 1), (1, 6, 2), (2, 4, 1)]
    assert running.batch(19, (7, 1, 5, 11), (8, 1, 0, 12)) == [(1, 8, 3)]
    assert running.batch(29, (9, 2, 5, 21), (10, 2, 0, 22)) == [(2, 10, 2)]


def test_rows_that_are_due_at_once_are_searched_by_stages() -> None:
    """If a watermark releases many rows, each search reads a limited number, plus the rows of begun matches."""
    read: list[int] = []
    of = Sought(PatternSequence((A, MORE_B)), (_LARGE, _SMALL, _LARGE), Skip(), 5000, all_rows=False, calls=(LAST,))

    def noted(payloads: pa.BinaryArray) -> ReadableRows:
        read.append(len(payloads))
        return of.spec.read(payloads)

    operator = MatchRecognize(replace(of.spec, read=noted, most=50))
    stores = {name: MemoryStore() for name in operator.arrangements}
    rows = [(number, (number, number % 3, 5 if number % 10 < 3 else 0, 2 * number)) for number in range(1, 1001)]
    assert not len(operator.process(columns(rows, strong_hash), stores, 0).rows)
    output = operator.process(columns([], strong_hash), stores, 2000)
    assert len(output.rows) > 250
    assert sum(read) >= 1000
    assert max(read) < 70
