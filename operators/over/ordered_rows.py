"""The ordered rows of the touched partitions, before and after a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns.changes import Indices, Int64s, Mask, concat_binary, constant
from rowkind.operators.columns.grouping import group, members
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.packed_columns import unpack
from rowkind.operators.rank.rows import byte_ranks

_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Ordered rows of partitions: rows that stay, retracted rows and inserted rows.

    - `key` and `order`: the row's partition and order key, as numbers.
    - `was` and `now`: whether the row is present before the batch and after it.
    - `stored`: the stored row, with its results and carried columns; empty for an inserted row.
    """

    entries: Entries
    key: Indices
    order: Int64s
    was: Mask
    now: Mask
    stored: pa.BinaryArray

    @property
    def changed(self) -> Mask:
        """A mask of the rows that are inserted or retracted."""
        changed: Mask = self.was != self.now
        return changed

    @classmethod
    def of(cls, keys: TouchedKeys, stored: Entries, kinds: str, gone: Entries, come: Entries) -> OrderedRows:
        """Order the stored and inserted rows of partitions with changes, and mark the retracted rows."""
        touched = np.zeros(len(keys.hash) + 1, np.bool_)
        for part in (gone, come):
            touched[keys.find(part)] = True
        stored = stored.filter(touched[keys.find(stored)])
        packed = stored.payload
        payload, _, *carried = unpack(kinds, packed)
        stored = replace(stored, payload=payload)
        entries = Entries.concat([stored, come])
        was, now = np.repeat([True, False], [len(stored), len(come)]), np.ones(len(entries), np.bool_)
        now[: len(stored)] = ~_taken(stored, gone)
        key, order = keys.find(entries), byte_ranks(entries.sub_key)
        counts = [each for kind, each in zip(kinds[2:], carried, strict=True) if kind == "n"]
        at = _in_order(entries, key, order, [np.append(each, np.full(len(come), _LAST)) for each in counts])
        packed = concat_binary([packed, constant(b"", len(come))])
        return cls(entries.take(at), key[at], order[at], was[at], now[at], packed.take(pa.array(at)))

    @property
    def payload(self) -> pa.BinaryArray:
        """The input rows' payloads, without results."""
        return self.entries.payload


def _taken(rows: Entries, gone: Entries) -> Mask:
    """Return a mask of the retracted rows. Of several equal rows, only as many as were retracted are marked."""
    if not len(gone):
        return np.zeros(len(rows), np.bool_)
    both = Entries.concat([rows, gone])
    codes = mix(mix(mix(hash64(both.payload), both.hash), both.seq.view(np.uint64)), both.written_at.view(np.uint64))
    groups = group(codes, [both.key, both.sub_key, both.payload, both.seq, both.written_at])
    own, wanted = groups.ids[: len(rows)], np.bincount(groups.ids[len(rows) :], minlength=groups.count)
    queue = np.argsort(own, kind="stable")
    taken = np.zeros(len(rows), np.bool_)
    taken[queue] = members(np.bincount(own, minlength=groups.count))[1] < wanted[own[queue]]
    assert int(taken.sum()) == len(gone), "every retracted row must have stored results"
    return taken


def _in_order(entries: Entries, key: Indices, order: Int64s, counts: Sequence[Int64s]) -> Indices:
    """Return the rows' order by partition, order key, arrival and payload.

    Rows that are equal in all four keep the order in which they were given their results, because the columns in
    `counts` increase with each row.
    """
    at = np.lexsort((entries.seq, order, key))
    same = np.logical_and.reduce([column[at][1:] == column[at][:-1] for column in (entries.seq, order, key)])
    if not same.any():
        return at
    return np.lexsort((*reversed(counts), byte_ranks(entries.payload), entries.seq, order, key))
