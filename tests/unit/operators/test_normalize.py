"""Normalize case by case: situation, change, what comes out."""

from __future__ import annotations

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.join_input import Side
from rowkind.operators.normalize import Normalize
from rowkind.operators.operator import Output
from tests import changelogs
from tests.changelogs import Change, Row, Table, unpack

INSERT, DELETE, AFTER = RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER


class Running:
    """Normalize of rows (id, key, value) with the id as primary key, batch after batch."""

    def __init__(self, *, ttl_ms: int | None = None, arrivals: bool = False) -> None:
        self.operator = Normalize(Side("one row per key", ttl_ms, by_seq=True), arrivals=arrivals)
        self.stores = {"rows": MemoryStore()}
        self.seq = 0
        self.output: Output | None = None

    @property
    def numbers(self) -> list[int]:
        """The arrival numbers of what the last batch emitted, retractions first."""
        assert self.output is not None
        return list(self.output.rows.seq.tolist())

    def batch(self, *steps: tuple[RowKind, Row], now: int = 0) -> list[tuple[str, Row]]:
        """What a batch of changes emits, sorted: symbol and row."""
        batch = []
        for kind, row in steps:
            self.seq += 1
            batch.append(Change(0, kind, row, self.seq))
        self.output = self.operator.process(changelogs.packed(batch, [Table(key=(0,))]), self.stores, now)
        rows = self.output.rows
        symbols = ["+" if kind == INSERT else "-" for kind in rows.kind]
        return sorted(zip(symbols, map(unpack, rows.payload.to_pylist()), strict=True), key=repr)


OLD, NEW, TOMBSTONE = (1, 7, 10), (1, 7, 11), (1, None, None)


def test_an_upsert_takes_the_stored_row_back() -> None:
    """The topic does not say what the old row was."""
    upserts = Running()
    assert upserts.batch((AFTER, OLD)) == [("+", OLD)]
    assert upserts.batch((AFTER, NEW)) == [("+", NEW), ("-", OLD)]


def test_a_tombstone_takes_the_stored_row_back_whole() -> None:
    """It has nothing but its key."""
    upserts = Running()
    upserts.batch((AFTER, OLD))
    assert upserts.batch((DELETE, TOMBSTONE)) == [("-", OLD)]
    assert list(upserts.stores["rows"]) == []
    assert upserts.batch((DELETE, TOMBSTONE)) == []


def test_the_same_row_again_puts_nothing_out() -> None:
    """Neither in a later batch nor twice in one, nor behind its own tombstone."""
    upserts = Running()
    assert upserts.batch((AFTER, OLD), (AFTER, OLD)) == [("+", OLD)]
    assert upserts.batch((AFTER, OLD)) == []
    assert upserts.batch((DELETE, TOMBSTONE), (AFTER, OLD)) == []


def test_of_several_upserts_in_a_batch_the_last_counts() -> None:
    """Output is net within the batch."""
    assert Running().batch((AFTER, OLD), (DELETE, TOMBSTONE), (AFTER, NEW)) == [("+", NEW)]


def test_an_expired_row_is_not_taken_back_and_a_refreshed_one_lives_longer() -> None:
    """Writing a row again counts, although it emits nothing."""
    upserts = Running(ttl_ms=10)
    upserts.batch((AFTER, OLD), now=0)
    assert upserts.batch((AFTER, OLD), now=9) == []
    assert upserts.batch((AFTER, NEW), now=18) == [("+", NEW), ("-", OLD)]
    assert upserts.batch((AFTER, OLD), now=28) == [("+", OLD)]


def test_with_arrivals_each_write_replaces_the_row() -> None:
    """A row that is written again with equal values leaves with its old number and comes back with its new one."""
    upserts = Running(arrivals=True)
    assert upserts.batch((AFTER, OLD), (AFTER, OLD)) == [("+", OLD)]
    assert upserts.numbers == [2]
    assert upserts.batch((AFTER, OLD)) == [("+", OLD), ("-", OLD)]
    assert upserts.numbers == [2, 3]
    assert upserts.batch((DELETE, TOMBSTONE), (AFTER, OLD)) == [("+", OLD), ("-", OLD)]
    assert upserts.numbers == [3, 5]


def test_with_arrivals_equal_rows_without_a_key_are_retracted_oldest_first() -> None:
    """Each of them keeps its own number, in whichever batches they come and go."""
    rows = Running()
    rows.operator = Normalize(Side("multiset", by_seq=True), arrivals=True)
    assert rows.batch((INSERT, OLD), (INSERT, OLD)) == [("+", OLD), ("+", OLD)]
    assert rows.batch((INSERT, OLD), (DELETE, OLD)) == [("+", OLD), ("-", OLD)]
    assert rows.numbers == [1, 3]
    rows.batch((DELETE, OLD))
    assert rows.numbers == [2]
    rows.batch((DELETE, OLD))
    assert rows.numbers == [3]
