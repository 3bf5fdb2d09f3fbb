"""The normalize operator, case by case."""

from __future__ import annotations

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.join.input import Side
from rowkind.operators.normalize.normalize import Normalize
from rowkind.operators.operator import Output
from tests import changelogs
from tests.changelogs import Change, Row, Table, unpack

INSERT, DELETE, AFTER = RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER


class Running:
    """Normalize rows (ID, key, value) with the ID as primary key, batch by batch."""

    def __init__(self, *, ttl_ms: int | None = None, arrivals: bool = False) -> None:
        self.operator = Normalize(Side("one row per key", ttl_ms, by_seq=True), arrivals=arrivals)
        self.stores = {"rows": MemoryStore()}
        self.seq = 0
        self.output: Output | None = None

    @property
    def numbers(self) -> list[int]:
        """The arrival numbers of the rows that the last batch emitted, retractions first."""
        assert self.output is not None
        return list(self.output.rows.seq.tolist())

    def batch(self, *steps: tuple[RowKind, Row], now: int = 0) -> list[tuple[str, Row]]:
        """Process these changes as one batch; return what is emitted as symbol and row, sorted."""
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
    """An upsert retracts the stored row, because the topic does not contain the old row."""
    upserts = Running()
    assert upserts.batch((AFTER, OLD)) == [("+", OLD)]
    assert upserts.batch((AFTER, NEW)) == [("+", NEW), ("-", OLD)]


def test_a_tombstone_takes_the_stored_row_back_whole() -> None:
    """A tombstone, which has only a key, retracts the stored row with all its columns."""
    upserts = Running()
    upserts.batch((AFTER, OLD))
    assert upserts.batch((DELETE, TOMBSTONE)) == [("-", OLD)]
    assert list(upserts.stores["rows"]) == []
    assert upserts.batch((DELETE, TOMBSTONE)) == []


def test_the_same_row_again_puts_nothing_out() -> None:
    """An equal row emits nothing: in a later batch, twice in one batch, or after its own tombstone in one batch."""
    upserts = Running()
    assert upserts.batch((AFTER, OLD), (AFTER, OLD)) == [("+", OLD)]
    assert upserts.batch((AFTER, OLD)) == []
    assert upserts.batch((DELETE, TOMBSTONE), (AFTER, OLD)) == []


def test_of_several_upserts_in_a_batch_the_last_counts() -> None:
    """Of several upserts in a batch, only the last is emitted."""
    assert Running().batch((AFTER, OLD), (DELETE, TOMBSTONE), (AFTER, NEW)) == [("+", NEW)]


def test_an_expired_row_is_not_taken_back_and_a_refreshed_one_lives_longer() -> None:
    """An expired row is not retracted, and writing an equal row refreshes the TTL without emitting anything."""
    upserts = Running(ttl_ms=10)
    upserts.batch((AFTER, OLD), now=0)
    assert upserts.batch((AFTER, OLD), now=9) == []
    assert upserts.batch((AFTER, NEW), now=18) == [("+", NEW), ("-", OLD)]
    assert upserts.batch((AFTER, OLD), now=28) == [("+", OLD)]


def test_with_arrivals_each_write_replaces_the_row() -> None:
    """With arrivals, writing an equal row again retracts it with its old number and inserts it with the new one."""
    upserts = Running(arrivals=True)
    assert upserts.batch((AFTER, OLD), (AFTER, OLD)) == [("+", OLD)]
    assert upserts.numbers == [2]
    assert upserts.batch((AFTER, OLD)) == [("+", OLD), ("-", OLD)]
    assert upserts.numbers == [2, 3]
    assert upserts.batch((DELETE, TOMBSTONE), (AFTER, OLD)) == [("+", OLD), ("-", OLD)]
    assert upserts.numbers == [3, 5]


def test_with_arrivals_equal_rows_without_a_key_are_retracted_oldest_first() -> None:
    """With arrivals, equal rows keep their own numbers and are retracted oldest first, across batches."""
    rows = Running()
    rows.operator = Normalize(Side("multiset", by_seq=True), arrivals=True)
    assert rows.batch((INSERT, OLD), (INSERT, OLD)) == [("+", OLD), ("+", OLD)]
    assert rows.batch((INSERT, OLD), (DELETE, OLD)) == [("+", OLD), ("-", OLD)]
    assert rows.numbers == [1, 3]
    rows.batch((DELETE, OLD))
    assert rows.numbers == [2]
    rows.batch((DELETE, OLD))
    assert rows.numbers == [3]
