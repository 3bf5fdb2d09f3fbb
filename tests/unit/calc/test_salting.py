"""Salted keys: the shards that rows of one key go to, matches across shards, and reports about copies."""

from __future__ import annotations

import numpy as np

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinSpec
from rowkind.service.execute.salting import salted
from rowkind.service.physical.keys import Salt

SHARDS = 32


def changes(key: bytes | None, rows: list[bytes], kind: RowKind = RowKind.INSERT, side: int = 0) -> Changes:
    """Return rows of one key, each with its payload as the sub-key."""
    count = len(rows)
    keys, payload = binary([key] * count), binary(rows)
    hashes = hash64(payload) if key is None else hash64(keys)
    return Changes(
        np.full(count, side, np.int8), np.full(count, kind, np.int8), hashes, keys, payload, np.arange(count), payload
    )


def places(found: Changes) -> set[tuple[int, bytes]]:
    """Return the keys with their hashes."""
    return set(zip(found.hash.tolist(), found.key.to_pylist(), strict=True))


def test_rows_of_one_key_are_dealt_out_to_shards_that_follow_each_other() -> None:
    """A hundred rows of one key reach five consecutive shards, the same ones as the other side's copies."""
    rows = [f"row {number}".encode() for number in range(100)]

    dealt = salted(Salt(5, "by row"), changes(b"hot", rows))
    copied = salted(Salt(5, "copies"), changes(b"hot", [b"one"]))

    assert places(dealt) == places(copied)
    first = int(hash64(binary([b"hot"]))[0] % SHARDS)
    assert {int(each) for each in dealt.hash % SHARDS} == {(first + number) % SHARDS for number in range(5)}
    assert dealt.payload.to_pylist() == rows


def test_a_row_and_its_retraction_get_the_same_salt() -> None:
    """The salt depends on the whole row or on the sub-key, so a row and its retraction go to the same shard."""
    for deal in ("by row", "by sub-key"):
        came, goes = (
            salted(Salt(7, deal), changes(b"k", [b"a", b"b"], kind)) for kind in (RowKind.INSERT, RowKind.DELETE)
        )
        assert came.hash.tolist() == goes.hash.tolist()
        assert came.key.equals(goes.key)
    other = salted(Salt(7, "by sub-key"), changes(b"k", [b"a", b"b"]))
    assert places(other) == places(salted(Salt(7, "by sub-key"), changes(b"k", [b"b", b"a"])))


def test_rows_without_a_key_stay_where_their_content_leads() -> None:
    """Rows without a key match nothing and keep their hash, which spreads them already."""
    alone = changes(None, [b"a", b"b"])

    assert salted(Salt(4, "by row"), alone).hash.tolist() == alone.hash.tolist()
    assert salted(Salt(4, "by row"), alone).key.null_count == 2


def test_a_stray_retraction_of_a_copied_row_is_told_once() -> None:
    """Each copy of an unmatched retraction finds no row, but it is counted once, even if the row has expired."""
    for ttl, unmatched, late in ((None, 1, 0), (1000, 0, 1)):
        join = Join(JoinSpec("inner", Side("multiset"), Side("multiset", ttl_ms=ttl, copied=True)))
        stores = {name: MemoryStore() for name in join.arrangements}
        lost = salted(Salt(6, "copies"), changes(b"k", [b"r"], RowKind.DELETE, 1))
        output = join.process(Batch(lost), stores, now=1)
        assert (len(output.unmatched), output.expired) == (unmatched, late)
