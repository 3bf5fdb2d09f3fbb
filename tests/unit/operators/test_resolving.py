"""How changes become entries: the stored row that a retraction removes, and unmatched retractions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout
from rowkind.operators.arrangement.resolving import Resolved, resolve
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from tests import changelogs
from tests.changelogs import Change, Row, constant_hash, strong_hash, unpack
from tests.oracle.inputs import TABLES

INSERT, DELETE, UPDATE = RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER


class State:
    """An arrangement over several batches, 1 ms apart."""

    def __init__(
        self,
        layout: Layout,
        *,
        by_seq: bool = True,
        exact: bool = False,
        hashed: changelogs.Hash = strong_hash,
        ttl_ms: int | None = None,
    ) -> None:
        self.layout, self.by_seq, self.exact, self.hashed, self.ttl_ms = layout, by_seq, exact, hashed, ttl_ms
        self.store, self.now = MemoryStore(), 0

    def batch(self, *batch: tuple[RowKind, Row, int]) -> Resolved:
        """Resolve the changes (kind, row, seq) and append the resulting entries."""
        self.now += 1
        arrangement = Arrangement(self.store, ArrangementSpec("rows", self.layout, self.ttl_ms), self.now)
        changes = [Change(0, kind, row, seq) for kind, row, seq in batch]
        packed = changelogs.packed(changes, [TABLES[self.layout]], self.hashed)
        resolved = resolve(arrangement, packed, by_seq=self.by_seq, exact=self.exact)
        removed = resolved.removed
        for entries in (resolved.added, removed.relabel(weight=-removed.weight), resolved.refreshed):
            arrangement.append(entries)
        arrangement.finish()
        return resolved


def read(entries: Entries) -> list[tuple[Row, int, int]]:
    """Return row, written_at and seq of each entry."""
    rows = map(unpack, entries.payload.to_pylist())
    return sorted(zip(rows, entries.written_at.tolist(), entries.seq.tolist(), strict=True))


def test_of_equal_rows_a_retraction_takes_the_oldest() -> None:
    """With a TTL, a retraction removes the oldest equal row by (written_at, seq) and has its times."""
    state = State("multiset", ttl_ms=100)
    state.batch((INSERT, (1, 1, 1), 9), (INSERT, (1, 1, 1), 8))
    state.batch((INSERT, (1, 1, 1), 3))
    assert read(state.batch((DELETE, (1, 1, 1), 20)).removed) == [((1, 1, 1), 1, 8)]
    assert read(state.batch((DELETE, (1, 1, 1), 21), (DELETE, (1, 1, 1), 22)).removed) == [
        ((1, 1, 1), 1, 9),
        ((1, 1, 1), 2, 3),
    ]


def test_a_retraction_takes_stored_rows_before_those_of_its_batch() -> None:
    """An equal row that is deleted and inserted in one batch is refreshed with the new times."""
    state = State("multiset")
    state.batch((INSERT, (1, 1, 1), 1))
    resolved = state.batch((DELETE, (1, 1, 1), 2), (INSERT, (1, 1, 1), 3))
    assert len(resolved.added) == len(resolved.removed) == 0
    assert read(resolved.refreshed) == [((1, 1, 1), 1, 1), ((1, 1, 1), 2, 3)]
    assert resolved.refreshed.weight.sum() == 0


def test_in_an_ordered_multiset_a_retraction_cannot_take_a_later_row() -> None:
    """Ordered by seq, a retraction before its row is unmatched; without an order it cancels the row of its batch."""
    batch = ((DELETE, (1, 1, 1), 1), (INSERT, (1, 1, 1), 2))
    ordered = State("multiset").batch(*batch)
    assert ordered.unmatched.tolist() == [0]
    assert len(ordered.added) == 1
    unordered = State("multiset", by_seq=False).batch(*batch)
    assert unordered.unmatched.tolist() == []
    assert len(unordered.added) == 0


def test_of_too_many_retractions_the_last_are_unmatched() -> None:
    """Of four retractions of two rows, the two with the highest seqs are unmatched."""
    state = State("multiset", by_seq=False, ttl_ms=100)
    state.batch((INSERT, (1, 1, 1), 1), (INSERT, (1, 1, 1), 2))
    resolved = state.batch(*((DELETE, (1, 1, 1), seq) for seq in (13, 11, 12, 10)))
    assert resolved.unmatched.tolist() == [0, 2]
    assert read(resolved.removed) == [((1, 1, 1), 1, 1), ((1, 1, 1), 1, 2)]


@pytest.mark.parametrize("layout", ["one row per key", "unique key"])
def test_a_bare_update_replaces_the_row_with_its_identity(layout: Layout) -> None:
    """An update without an old row removes the stored row, with that row's times."""
    state = State(layout)
    state.batch((INSERT, (1, 1, 1), 1))
    resolved = state.batch((UPDATE, (1, 1, 2), 2))
    assert read(resolved.removed) == [((1, 1, 1), 1, 1)]
    assert read(resolved.added) == [((1, 1, 2), 2, 2)]


@pytest.mark.parametrize("layout", ["one row per key", "unique key"])
def test_a_retraction_with_another_payload_takes_the_stored_row(layout: Layout) -> None:
    """A retraction removes the row with its identity, even if its payload differs."""
    state = State(layout)
    state.batch((INSERT, (1, 1, 1), 1))
    assert read(state.batch((DELETE, (1, 1, None), 2)).removed) == [((1, 1, 1), 1, 1)]


def test_the_last_change_of_a_row_in_a_batch_wins_by_seq() -> None:
    """The change with the highest seq wins, in any order of the batch; if that is a delete, nothing is left."""
    state = State("unique key")
    resolved = state.batch((UPDATE, (1, 1, 3), 3), (INSERT, (1, 1, 1), 1), (UPDATE, (1, 1, 2), 2))
    assert read(resolved.added) == [((1, 1, 3), 1, 3)]
    resolved = state.batch((DELETE, (1, 1, 4), 5), (UPDATE, (1, 1, 4), 4))
    assert len(resolved.added) == 0
    assert read(resolved.removed) == [((1, 1, 3), 1, 3)]


def test_a_retraction_is_unmatched_where_no_row_is_there_at_its_turn() -> None:
    """The second of two consecutive deletes is unmatched, even if an insertion follows."""
    resolved = State("unique key").batch(
        (INSERT, (1, 1, 1), 1), (DELETE, (1, 1, 1), 2), (DELETE, (1, 1, 1), 3), (INSERT, (1, 1, 1), 4)
    )
    assert resolved.unmatched.tolist() == [2]
    assert read(resolved.added) == [((1, 1, 1), 1, 4)]


def test_a_retraction_that_was_overtaken_does_not_take_the_new_row() -> None:
    """For an exact input, a retraction removes an equal row, stored or of its batch, or is unmatched."""
    state = State("unique key", exact=True)
    state.batch((INSERT, (1, 1, 1), 1))
    resolved = state.batch((UPDATE, (1, 1, 2), 2))
    assert (read(resolved.added), read(resolved.removed)) == ([((1, 1, 2), 2, 2)], [((1, 1, 1), 1, 1)])
    late = state.batch((RowKind.UPDATE_BEFORE, (1, 1, 1), 3))
    assert (len(late.removed), late.unmatched.tolist()) == (0, [0])
    # The same in one batch: of three retractions, only the middle one finds an equal row.
    changes = [(UPDATE, (1, 1, 3), 4), (DELETE, (1, 1, 2), 5), (DELETE, (1, 1, 3), 6), (DELETE, (1, 1, 9), 7)]
    resolved = state.batch(*changes, (UPDATE, (1, 1, 4), 8))
    assert (read(resolved.added), resolved.unmatched.tolist()) == ([((1, 1, 4), 4, 8)], [1, 3])
    assert read(state.batch((DELETE, (1, 1, 4), 9)).removed) == [((1, 1, 4), 4, 8)]


def test_changes_of_a_set_add_up_before_they_count() -> None:
    """Without an order, opposite changes of a row cancel in any order of the batch, and none is unmatched."""
    state = State("unique key", by_seq=False, ttl_ms=100)
    for batch in (
        ((INSERT, (1, 1, 1), 1), (DELETE, (1, 1, 1), 2)),
        ((DELETE, (1, 1, 2), 5), (DELETE, (1, 1, 1), 2), (INSERT, (1, 1, 2), 4), (INSERT, (1, 1, 1), 1)),
    ):
        resolved = state.batch(*batch)
        assert [len(part) for part in (resolved.added, resolved.removed, resolved.refreshed)] == [0, 0, 0]
        assert (resolved.unmatched.tolist(), resolved.repeated.tolist()) == ([], [])
    resolved = state.batch((DELETE, (1, 1, 1), 7), (INSERT, (1, 1, 1), 6), (INSERT, (1, 1, 2), 8))
    assert read(resolved.added) == [((1, 1, 2), 3, 8)]
    # A stored row that is deleted and inserted again is rewritten.
    resolved = state.batch(
        (INSERT, (1, 1, 3), 10), (DELETE, (1, 1, 2), 9), (INSERT, (1, 1, 2), 12), (DELETE, (1, 1, 3), 11)
    )
    assert (len(resolved.added), len(resolved.removed), resolved.unmatched.tolist()) == (0, 0, [])
    assert read(resolved.rewritten) == [((1, 1, 2), 4, 8)]


@pytest.mark.parametrize("layout", ["one row per key", "unique key"])
@pytest.mark.parametrize("seed", range(20))
def test_any_pieces_of_a_set_of_changes_are_the_whole(layout: Layout, seed: int) -> None:
    """Random changes that respect the unique key, in any order, leave the rows that they add up to."""
    dice, state = random.Random(seed), State(layout, by_seq=False)
    there: dict[int, int] = {}
    view: Counter[Row] = Counter()
    seq = 0
    for _ in range(6):
        batch: list[tuple[RowKind, Row, int]] = []
        for _ in range(dice.randrange(12)):
            key, seq = dice.randrange(4), seq + 2
            if key in there:
                batch.append((DELETE, (key, key, there.pop(key)), seq))
            if dice.random() < 0.7:
                there[key] = dice.randrange(2)
                batch.append((INSERT, (key, key, there[key]), seq + 1))
        dice.shuffle(batch)
        resolved = state.batch(*batch)
        assert (resolved.unmatched.tolist(), resolved.repeated.tolist()) == ([], [])
        view.update(row for row, *_ in read(resolved.added))
        view.subtract(row for row, *_ in read(resolved.removed))
        assert +view == Counter((key, key, value) for key, value in there.items())
        assert not -view


def test_rows_without_identity_are_a_multiset_in_any_layout() -> None:
    """A NULL key without a sub-key is no identity: equal rows are kept separately, and none replaces another."""
    state = State("one row per key")
    state.batch((INSERT, (None, 1, 1), 1), (INSERT, (None, 1, 1), 2), (INSERT, (None, 1, 2), 3))
    resolved = state.batch((DELETE, (None, 1, 1), 4), (DELETE, (None, 1, 3), 5))
    assert read(resolved.removed) == [((None, 1, 1), 1, 1)]
    assert resolved.unmatched.tolist() == [1]


@pytest.mark.parametrize("layout", ["one row per key", "unique key", "multiset"])
def test_keys_that_share_their_hash_stay_apart(layout: Layout) -> None:
    """With a constant hash, every row is still found by its own key."""
    state = State(layout, hashed=constant_hash)
    state.batch(*((INSERT, (number, number, 1), number) for number in range(6)))
    resolved = state.batch((DELETE, (4, 4, 1), 10), (DELETE, (7, 7, 1), 11))
    assert read(resolved.removed) == [((4, 4, 1), 1, 4)]
    assert resolved.unmatched.tolist() == [1]
