"""The temporal filter compared with its definition: after each batch, the rows between their begin and end."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.columns.rowtime import BEGINNING, END
from rowkind.operators.operator import Output
from rowkind.operators.time.temporal_filter import TemporalFilter, TemporalFilterSpec
from tests import changelogs
from tests.changelogs import Change, Row, Table, unpack
from tests.seeds import seeds

INSERT, DELETE, REFRESH = RowKind.INSERT, RowKind.DELETE, None


@dataclass(frozen=True)
class At:
    """The time in one column of the test rows, `END` if it is NULL."""

    column: int

    def __call__(self, payload: pa.BinaryArray) -> Int64s:
        """Return the time of each row."""
        found = [unpack(each)[self.column] for each in payload.to_pylist()]
        return np.array([END if value is None else value for value in found], np.int64)


class Running:
    """A filter of rows (ID, begin, end), batch by batch."""

    def __init__(self, *, most: int | None = None, refreshes: bool = False, ends: bool = True) -> None:
        self.operator = TemporalFilter(TemporalFilterSpec(At(1), At(2) if ends else None, most, refreshes))
        self.stores = {"agenda": MemoryStore()}
        self.seq = 0
        self.output: Output | None = None
        self.view: Counter[Row] = Counter()

    def batch(self, now: int, *steps: tuple[RowKind | None, Row]) -> list[tuple[str, Row]]:
        """Process these changes as one batch; return what is emitted as symbol and row, in order."""
        batch = []
        for kind, row in steps:
            self.seq += 1
            batch.append(Change(0, kind, row, self.seq))
        self.output = self.operator.process(changelogs.packed(batch, [Table(key=(0,))]), self.stores, now)
        changelogs.fold(self.view, self.output.rows)
        rows, refreshes = self.output.rows, self.output.emitted.refreshes
        symbols = {INSERT: "+", DELETE: "-"}
        found = [(symbols[RowKind(k)], unpack(p)) for k, p in zip(rows.kind, rows.payload.to_pylist(), strict=True)]
        return found + [("=", unpack(payload)) for payload in refreshes.payload.to_pylist()]


def test_a_row_comes_and_goes_without_input() -> None:
    """A row is inserted at its begin and retracted at its end by time alone, without input."""
    running, row = Running(), (1, 10, 20)
    assert running.batch(5, (INSERT, row)) == []
    assert running.output is not None
    assert running.output.due == 10
    assert running.batch(9) == []
    assert running.batch(10) == [("+", row)]
    assert running.batch(19) == []
    assert running.batch(20) == [("-", row)]
    assert running.output.due is None
    assert list(running.stores["agenda"]) == []


def test_a_row_is_taken_back_at_any_time() -> None:
    """A row that is deleted before its begin or after its end emits nothing."""
    for taken, expected in ((5, []), (15, [("-", (1, 10, 20))]), (25, [])):
        running, row = Running(), (1, 10, 20)
        running.batch(0, (INSERT, row))
        running.batch(taken)
        assert running.batch(taken, (DELETE, row)) == expected
        assert running.batch(100) == []
        assert not +running.view


def test_time_and_a_retraction_in_one_batch_cancel() -> None:
    """A row that is due and deleted in the same batch is not emitted."""
    running, row = Running(), (1, 10, 20)
    running.batch(5, (INSERT, row))
    assert running.batch(10, (DELETE, row)) == []
    assert running.batch(30) == []


def test_a_time_that_is_never_leaves_the_row_out_or_in() -> None:
    """A row without a begin is never emitted, and a row without an end is never retracted by time."""
    running = Running()
    assert running.batch(5, (INSERT, (1, None, 20)), (INSERT, (2, 1, None))) == [("+", (2, 1, None))]
    assert running.batch(1 << 40) == []
    assert list(running.stores["agenda"]) == []


def test_what_was_never_there_is_unmatched() -> None:
    """A second retraction of a waiting row is unmatched and emits nothing."""
    running, row = Running(), (1, 10, 20)
    running.batch(0, (INSERT, row))
    assert running.batch(1, (DELETE, row), (DELETE, row)) == []
    assert running.output is not None
    assert len(running.output.unmatched) == 1
    assert running.batch(15) == []


def test_rows_come_in_the_order_of_their_times() -> None:
    """Rows are emitted in the order of their times, and those with equal times in the order of arrival."""
    running = Running(ends=False)
    running.batch(0, *((INSERT, (id_, at, None)) for id_, at in ((1, 30), (2, 10), (3, 20), (4, 10), (5, 99))))
    assert [row[0] for _, row in running.batch(50)] == [2, 4, 3, 1]


def test_no_more_come_at_once_than_may() -> None:
    """10,000 rows that are due in one ms are emitted in portions, each exactly once."""
    running = Running(most=1000, ends=False)
    running.batch(0, *((INSERT, (id_, 10, None)) for id_ in range(10_000)))
    portions = []
    while not portions or portions[-1]:
        portions.append(len(running.batch(10)))
    assert max(portions) < 1100
    assert sum(portions) == 10_000
    assert running.batch(11) == []


def test_a_refresh_goes_on_where_its_row_is_there() -> None:
    """A refresh is passed on only if its row has been emitted."""
    running, row = Running(refreshes=True), (1, 10, 20)
    running.batch(0, (INSERT, row))
    assert running.batch(1, (REFRESH, row)) == []
    running.batch(12)
    assert running.batch(13, (REFRESH, row)) == [("=", row)]


def test_what_has_always_been_there_does_not_wait_for_a_clock() -> None:
    """Before the first watermark, a row with a time waits, and a row that is always due does not."""
    running = Running(ends=False)
    assert running.batch(BEGINNING, (INSERT, (1, -END, None)), (INSERT, (2, 5, None))) == [("+", (1, -END, None))]
    assert running.batch(BEGINNING, (DELETE, (1, -END, None))) == [("-", (1, -END, None))]
    assert running.batch(5) == [("+", (2, 5, None))]


@pytest.mark.parametrize("seed", seeds(60))
def test_random_changes(seed: int) -> None:
    """After every batch, also with restored state, the result has the rows between their begin and end."""
    dice = random.Random(seed)
    running = Running(most=dice.choice([None, None, 3]))
    there: Counter[Row] = Counter()
    now = 0
    for _ in range(dice.randint(1, 25)):
        steps: list[tuple[RowKind, Row]] = []
        for _ in range(dice.randint(0, 8)):
            live = sorted(there.elements(), key=repr)
            if live and dice.random() < 0.4:
                row = dice.choice(live)
                steps.append((DELETE, row))
                there[row] -= 1
            else:
                begin = dice.choice([None, *range(now - 5, now + 15)])
                end = dice.choice([None, *range(now - 5, now + 25)])
                row = (dice.randint(1, 3), begin, end)
                steps.append((INSERT, row))
                there[row] += 1
        dice.shuffle(steps)
        running.stores = {name: store.copy() for name, store in running.stores.items()}
        running.batch(now, *steps)
        if running.operator.spec.most is None:
            assert +running.view == _there(there, now)
        now += dice.choice([0, 0, 1, 3, 10])
    while running.output is not None and running.output.due is not None and running.output.due <= now:
        running.batch(now)
    assert +running.view == _there(there, now)


def _there(rows: Counter[Row], now: int) -> Counter[Row]:
    """Return the expected rows by the definition."""

    def is_there(row: Row) -> bool:
        begins, ends = (END if value is None else value for value in row[1:])
        return begins <= now < ends

    return Counter({row: count for row, count in rows.items() if count > 0 and is_there(row)})
