"""The join operator, case by case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import netting
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Mask
from rowkind.operators.errors import BatchTooLarge
from rowkind.operators.join import rows as join_rows
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from rowkind.operators.operator import Output
from tests import changelogs
from tests.changelogs import Change, Row, Table, pack, unpack
from tests.oracle.inputs import TABLES

L, R = 0, 1
INSERT, DELETE, BEFORE, AFTER = RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
BY_SEQ = Side("unique key", by_seq=True)
Step = tuple[int, RowKind, Row]


class Running:
    """A join on column 1 of rows (ID, key, value), batch by batch."""

    def __init__(
        self,
        kind: JoinKind,
        *,
        side: Side = BY_SEQ,
        ttls: tuple[int | None, int | None] = (None, None),
        condition: join_rows.Condition | None = None,
        payload: tuple[int, ...] = (0, 1, 2),
    ) -> None:
        self.table = Table(TABLES[side.layout].key, TABLES[side.layout].sub_key, payload)
        left, right = (replace(side, ttl_ms=ttl) for ttl in ttls)
        nulls = pack((None,) * len(payload))
        self.join = Join(JoinSpec(kind, left, right, condition, nulls, nulls))
        self.stores = {name: MemoryStore() for name in self.join.arrangements}
        self.seq = 0
        self.output: Output | None = None

    def batch(self, *steps: Step, now: int = 0) -> list[tuple[str, Row]]:
        """Process these changes as one batch; return what is emitted as symbol and row, sorted."""
        batch = []
        for side, kind, row in steps:
            self.seq += 1
            batch.append(Change(side, kind, row, self.seq))
        self.output = self.join.process(changelogs.packed(batch, [self.table] * 2), self.stores, now)
        rows = self.output.rows
        symbols = ["+" if kind == RowKind.INSERT else "-" for kind in rows.kind]
        return sorted(zip(symbols, map(unpack, rows.payload.to_pylist()), strict=True), key=repr)

    @property
    def unmatched(self) -> list[int]:
        """The seqs of the unmatched retractions in the last batch."""
        assert self.output is not None
        return sorted(self.output.unmatched.seq.tolist())


NULLS: Row = (None, None, None)
ORDER, PAYMENT, SECOND, OTHER = (1, 7, 10), (100, 7, 5), (101, 7, 6), (2, 8, 20)


def test_a_match_that_comes_replaces_the_pad_and_one_that_goes_brings_it_back() -> None:
    """The null-padded row is in the result exactly while the left row has no match."""
    join = Running("left")
    assert join.batch((L, INSERT, ORDER)) == [("+", ORDER + NULLS)]
    assert join.batch((R, INSERT, PAYMENT)) == [("+", ORDER + PAYMENT), ("-", ORDER + NULLS)]
    assert join.batch((R, INSERT, SECOND)) == [("+", ORDER + SECOND)]
    assert join.batch((R, DELETE, PAYMENT)) == [("-", ORDER + PAYMENT)]
    assert join.batch((R, DELETE, SECOND)) == [("+", ORDER + NULLS), ("-", ORDER + SECOND)]
    assert join.batch((L, DELETE, ORDER)) == [("-", ORDER + NULLS)]


def test_a_row_that_comes_with_its_match_never_shows_its_pad() -> None:
    """A row that is inserted in one batch with its match never emits a null-padded row."""
    assert Running("full").batch((L, INSERT, ORDER), (R, INSERT, PAYMENT)) == [("+", ORDER + PAYMENT)]


def test_an_update_that_replaces_the_only_match_shows_no_pad() -> None:
    """An update of the only match emits no null-padded row."""
    join = Running("left")
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT))
    new = (100, 7, 9)
    assert join.batch((R, BEFORE, PAYMENT), (R, AFTER, new)) == [("+", ORDER + new), ("-", ORDER + PAYMENT)]


def test_a_row_that_moves_to_another_key_leaves_the_one_and_joins_the_other() -> None:
    """An update that changes the key removes the row from one pair and joins it under the other key."""
    join = Running("full")
    join.batch((L, INSERT, ORDER), (L, INSERT, OTHER), (R, INSERT, PAYMENT))
    moved = (100, 8, 5)
    assert join.batch((R, BEFORE, PAYMENT), (R, AFTER, moved)) == [
        ("+", ORDER + NULLS),
        ("+", OTHER + moved),
        ("-", ORDER + PAYMENT),
        ("-", OTHER + NULLS),
    ]


def test_a_row_that_moves_to_another_key_with_equal_matches_puts_nothing_out() -> None:
    """If the key is not in the payload, the joined rows are equal and cancel."""
    join = Running("left", payload=(0, 2))
    join.batch((L, INSERT, (1, 7, 10)), (R, INSERT, (5, 7, 5)), (R, INSERT, (5, 8, 5)))
    assert join.batch((L, BEFORE, (1, 7, 10)), (L, AFTER, (1, 8, 10))) == []


def test_of_equal_output_rows_that_partly_cancel_the_latest_stays_whatever_the_order() -> None:
    """If two equal joined rows are inserted and one is retracted, the remaining one has the higher seq."""
    seqs = []
    for order in (1, -1):
        join = Running("inner", side=Side("multiset"), payload=(0, 2))
        join.batch((L, INSERT, (1, 7, 10)), *((R, INSERT, (5, key, 5)) for key in (7, 8, 9)))
        steps = [(L, DELETE, (1, 7, 10)), (L, INSERT, (1, 8, 10)), (L, INSERT, (1, 9, 10))]
        batch = [Change(side, kind, row, 100 + seq) for seq, (side, kind, row) in enumerate(steps)]
        changes = changelogs.packed(batch[::order], [join.table] * 2)
        rows = join.join.process(changes, join.stores, 0).rows
        assert rows.kind.tolist() == [RowKind.INSERT]
        seqs += rows.seq.tolist()
    assert seqs == [102, 102]


def test_equal_output_rows_that_all_come_keep_their_own_seq() -> None:
    """Equal output rows that are all inserted keep their own seqs, even if other rows of the batch cancel."""
    join = Running("inner", side=replace(BY_SEQ, layout="multiset"), payload=(0, 2))
    join.batch((L, INSERT, (1, 7, 10)), *((R, INSERT, (5, key, 5)) for key in (7, 8)))
    steps = (L, BEFORE, (1, 7, 10)), (L, AFTER, (1, 8, 10)), (L, INSERT, (2, 8, 10)), (L, INSERT, (2, 8, 10))
    assert join.batch(*steps) == [("+", (2, 10, 5, 5))] * 2
    assert join.output is not None
    assert sorted(join.output.rows.seq.tolist()) == [6, 7]


def test_null_keys_match_nothing_and_pad_on_outer_sides() -> None:
    """Rows with NULL keys match nothing and are null-padded on outer sides."""
    nobody, paid = (1, None, 10), (100, None, 5)
    assert Running("inner").batch((L, INSERT, nobody), (R, INSERT, paid)) == []
    join = Running("full")
    assert join.batch((L, INSERT, nobody), (R, INSERT, paid)) == [("+", nobody + NULLS), ("+", NULLS + paid)]
    assert join.batch((L, DELETE, nobody)) == [("-", nobody + NULLS)]


def test_duplicates_count() -> None:
    """Two equal rows on one side and three on the other make six; removing one retracts three."""
    join = Running("inner", side=replace(BY_SEQ, layout="multiset"))
    row, other = (1, 7, 1), (2, 7, 2)
    out = join.batch(*[(L, INSERT, row)] * 2, *[(R, INSERT, other)] * 3)
    assert out == [("+", row + other)] * 6
    assert join.batch((L, DELETE, row)) == [("-", row + other)] * 3


def _more(left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
    rows = zip(map(unpack, left.to_pylist()), map(unpack, right.to_pylist()), strict=True)
    return np.array([one[2] > other[2] for one, other in rows], np.bool_)  # type: ignore[operator]


def test_with_a_condition_a_match_is_key_and_condition() -> None:
    """A row that fails the condition is not joined and does not remove the null-padded row."""
    join, less = Running("left", condition=_more), (100, 7, 3)
    assert join.batch((L, INSERT, ORDER), (R, INSERT, (100, 7, 50))) == [("+", ORDER + NULLS)]
    assert join.batch((R, INSERT, SECOND)) == [("+", ORDER + SECOND), ("-", ORDER + NULLS)]
    assert join.batch((R, AFTER, less)) == [("+", ORDER + less)]
    assert join.batch((R, DELETE, SECOND)) == [("-", ORDER + SECOND)]
    assert join.batch((R, AFTER, (100, 7, 60))) == [("+", ORDER + NULLS), ("-", ORDER + less)]


def test_rows_that_stay_are_paired_only_where_it_decides_a_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many rows per key, a change evaluates the condition only for its own pairs."""
    asked: list[int] = []

    def condition(left: pa.BinaryArray, _right: pa.BinaryArray) -> Mask:
        asked.append(len(left))
        return np.ones(len(left), np.bool_)

    join = Running("inner", condition=condition)
    many = [(L, INSERT, (number, 7, 0)) for number in range(50)] + [(R, INSERT, (number, 7, 0)) for number in range(50)]
    join.batch(*many)
    asked.clear()
    join.batch((L, INSERT, (99, 7, 0)))
    assert sum(asked) == 50
    monkeypatch.setattr(join_rows, "PAIRS_AT_ONCE", 20)
    asked.clear()
    assert len(join.batch((L, INSERT, (98, 7, 0)), (L, INSERT, (97, 7, 0)))) == 100
    assert sum(asked) == 100


def test_an_unmatched_retraction_changes_nothing_and_comes_back() -> None:
    """An unmatched retraction emits nothing and is reported, unless the side does not count unmatched ones."""
    join = Running("left")
    assert join.batch((L, DELETE, ORDER)) == []
    assert join.unmatched == [1]
    upsert = Running("left", side=replace(BY_SEQ, counts_unmatched=False))
    assert upsert.batch((L, DELETE, ORDER)) == []
    assert upsert.unmatched == []


def test_the_seq_of_a_joined_row_is_the_later_of_its_parents() -> None:
    """The seq of a joined row is the higher one of its two rows; a null-padded row has the seq of its row."""
    join = Running("left")
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), (L, INSERT, (2, 9, 0)))
    assert join.output is not None
    assert sorted(join.output.rows.seq.tolist()) == [2, 3]


def test_a_row_expired_on_one_side_no_longer_matches() -> None:
    """Rows joined before the expiry stay in the result; a late retraction removes them and is counted as expired."""
    join = Running("inner", ttls=(None, 10))
    join.batch((R, INSERT, PAYMENT), now=0)
    assert join.batch((L, INSERT, ORDER), now=9) == [("+", ORDER + PAYMENT)]
    assert join.batch((R, INSERT, (101, 7, 6)), now=10) == [("+", (*ORDER, 101, 7, 6))]
    assert join.batch((R, DELETE, PAYMENT), now=11) == [("-", ORDER + PAYMENT)]
    assert join.unmatched == []
    assert join.output is not None
    assert join.output.expired == 1


def test_a_row_that_came_after_another_one_expired_loses_a_pair_that_was_never_emitted() -> None:
    """As in Flink, a retraction of an expired row also retracts pairs that were never emitted."""
    join = Running("inner", ttls=(None, 10))
    join.batch((R, INSERT, PAYMENT), now=0)
    assert join.batch((L, INSERT, ORDER), now=10) == []
    assert join.batch((R, DELETE, PAYMENT), now=11) == [("-", ORDER + PAYMENT)]


def test_a_refresh_makes_a_row_live_longer_and_puts_nothing_out() -> None:
    """An equal row that is written again refreshes the TTL and emits nothing."""
    join = Running("inner", ttls=(None, 10))
    join.batch((R, INSERT, PAYMENT), now=0)
    assert join.batch((R, AFTER, PAYMENT), now=8) == []
    assert join.batch((L, INSERT, ORDER), now=15) == [("+", ORDER + PAYMENT)]


def test_an_expired_match_does_not_bring_the_pad_back_and_the_next_match_takes_none_away() -> None:
    """An expired match does not restore the null-padded row, so the next match does not retract it."""
    join = Running("left", ttls=(None, 10))
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), now=0)
    assert join.batch((R, INSERT, SECOND), now=20) == [("+", ORDER + SECOND)]
    assert join.batch((R, DELETE, SECOND), now=21) == [("+", ORDER + NULLS), ("-", ORDER + SECOND)]
    assert join.batch((R, INSERT, SECOND), now=22) == [("+", ORDER + SECOND), ("-", ORDER + NULLS)]


def test_a_left_row_whose_matches_have_expired_goes_without_a_pad() -> None:
    """A left row whose matches expired is removed without a retraction; a null-padded one is retracted."""
    join = Running("left", ttls=(None, 10))
    late = (2, 7, 20)
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), now=0)
    assert join.batch((L, INSERT, late), now=20) == [("+", late + NULLS)]
    assert join.batch((L, DELETE, ORDER), (L, DELETE, late), now=21) == [("-", late + NULLS)]


def test_a_refreshed_left_row_keeps_what_is_known_of_its_pad() -> None:
    """After a refresh of the left row, a new match emits neither a second null-padded row nor its retraction."""
    join = Running("left", ttls=(100, 10))
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), now=0)
    assert join.batch((L, AFTER, ORDER), now=20) == []
    assert join.batch((R, INSERT, SECOND), now=21) == [("+", ORDER + SECOND)]


def test_dead_segments_of_state_do_not_outlive_the_rows() -> None:
    """When all rows on both sides are retracted, the stores are empty."""
    join = Running("full", ttls=(50, 50))
    join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), now=0)
    join.batch((L, DELETE, ORDER), (R, DELETE, PAYMENT), now=1)
    assert [list(store) for store in join.stores.values()] == [[], []]


def test_output_that_fits_no_block_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that is too large for a block is refused with its number of rows and bytes."""
    monkeypatch.setattr(netting, "LARGEST", 100)
    with pytest.raises(BatchTooLarge, match="4 rows with 216 bytes"):
        Running("inner", side=replace(BY_SEQ, layout="multiset")).batch(
            *[(L, INSERT, ORDER)] * 2, *[(R, INSERT, PAYMENT)] * 2
        )


def test_an_empty_batch_puts_nothing_out_and_keeps_the_state() -> None:
    """An empty batch emits nothing and keeps the state."""
    join = Running("full")
    join.batch((L, INSERT, ORDER))
    output = join.join.process(Batch.empty(), join.stores, 1)
    assert len(output.rows) == len(output.unmatched) == 0
    assert output.state.rows == 1


def test_the_merge_work_of_a_batch_is_reported() -> None:
    """The fourth run of a side starts a merge of all four, and the merged rows are reported."""
    join = Running("inner")
    merged = []
    for number in range(4):
        join.batch((L, INSERT, (number, 7, 0)), (R, INSERT, (number, 8, 0)))
        assert join.output is not None
        merged.append(join.output.merged_rows)
    assert merged == [0, 0, 0, 8]
