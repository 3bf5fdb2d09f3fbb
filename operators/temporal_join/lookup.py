"""Lookup join: each left row with the right rows that have its key when the left row arrives.

Results are never revised: later changes to the right side do not affect results that have been emitted. Changes to the
right side apply to the left rows of the same batch. So the result depends on when rows arrive, as in any
processing-time join. An unmatched left row is dropped or null-padded.

Retracting a left row retracts the results that were emitted when it arrived. So if the left side may retract, each left
row is stored with the right rows that it matched. If left rows are only inserted, no left rows are stored. If a left
row is retracted and inserted again within a batch, it keeps the right rows that it matched before.

State: arrangement "right" stores the right rows by key. Arrangement "left", if needed, stores the left rows by key in
layout *multiset*. The sub-key is a list of the right payloads that the left row matched. If the left row matched no
right row, the list contains only the pad (the null-padded right row), or is empty if the left row was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import LARGEST, net_rows
from rowkind.operators.arrangement.resolving import Resolved, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, binary, concat_binary, lengths
from rowkind.operators.columns.packed_columns import fixed_width, spans, starts_of
from rowkind.operators.errors import BatchTooLarge
from rowkind.operators.join.input import Side
from rowkind.operators.operator import Output

_WIDTH = 4
"""The size of a length prefix, in bytes."""


@dataclass(frozen=True, slots=True)
class LookupJoinSpec:
    """The specification of a lookup join. Keys are as for a join.

    - `right_pad`: the payload that replaces a missing right row; None if unmatched left rows are dropped.
    - `left_by_seq`: whether a left row's changes are applied in `seq` order, as for a source.
    - `left_only_comes`: whether left rows are never retracted.
    - `refreshes`: whether a downstream operator has a TTL.
    """

    right: Side
    right_pad: bytes | None = None
    left_by_seq: bool = False
    left_only_comes: bool = False
    refreshes: bool = False


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """The lookup join operator. It keeps its state in the stores, not in this object."""

    spec: LookupJoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements and their TTLs in ms: the right rows and, if left rows may be retracted, the left rows."""
        right = {"right": self.spec.right.ttl_ms}
        return right if self.spec.left_only_comes else {"left": None, **right}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec, side = self.spec, self.spec.right
        rows = Arrangement(stores["right"], ArrangementSpec("right", side.layout, side.ttl_ms), now)
        left_batch, right_batch = batch.side(0), batch.side(1)
        right = resolve(rows, right_batch, by_seq=side.by_seq, exact=side.exact)
        less = Entries.concat([-right.removed, right.refreshed])
        come = left_batch.changes.filter(left_batch.changes.weight > 0)
        there = Entries.concat([rows.lookup(come.hash, less), right.added])
        left_batch = left_batch.with_sub_keys(self._met(left_batch.touched, there))
        rows.append(less)
        rows.append(right.added)
        finished = rows.finish()
        if spec.left_only_comes:
            came = left_batch.changes.filter(left_batch.changes.weight > 0)
            emitted, unmatched = self._emitted(came.payload, came.sub_key, came.seq, came.weight, 0), []
        else:
            kept = Arrangement(stores["left"], ArrangementSpec("left", "multiset"), now)
            left = _with_what_they_met(resolve(kept, left_batch, by_seq=spec.left_by_seq))
            for entries in (-left.removed, left.refreshed, left.added):
                kept.append(entries)
            finished = Finished.total(finished, kept.finish())
            again = left.rewritten.relabel(weight=np.zeros(len(left.rewritten), np.int64))
            step = Entries.concat([-left.removed, left.added, again])
            emitted = self._emitted(step.payload, step.sub_key, step.seq, step.weight, len(again))
            unmatched = [left_batch.changes.take(left.unmatched)]
        if side.counts_unmatched:
            unmatched.append(right_batch.changes.take(right.unmatched))
        return Output(
            emitted,
            Changes.concat(unmatched),
            finished.state,
            finished.merged_rows,
            repeated=right_batch.changes.take(right.repeated),
        )

    def _met(self, left: Changes, right: Entries) -> pa.BinaryArray:
        """Return the right rows that each left row matches, as a packed list. Raises `BatchTooLarge`."""
        keys = TouchedKeys.of(left)
        of_right = keys.find(right)
        right, of_right = (
            right.filter(of_right >= 0).units,
            np.repeat(of_right, np.where(of_right >= 0, right.weight, 0)),
        )
        order = np.argsort(of_right, kind="stable")
        bounds = np.searchsorted(of_right[order], np.arange(len(keys.hash) + 1))
        met = _lists_of(right.payload.take(pa.array(order)), bounds)
        pad = self.spec.right_pad
        missing = binary([b""]) if pad is None else _lists_of(binary([pad]), np.arange(2))
        met = concat_binary([met, missing])
        list_of = np.where(np.diff(bounds) > 0, np.arange(len(keys.hash)), len(keys.hash))[keys.of_change]
        size = int(lengths(met)[list_of].sum())
        if size > LARGEST:
            raise BatchTooLarge(len(left), size)
        return met.take(pa.array(list_of))

    def _emitted(
        self, payload: pa.BinaryArray, met: pa.BinaryArray, seq: Int64s, weight: Int64s, again: int
    ) -> Emitted:
        """Return left rows joined with the right rows that they matched; the last `again` left rows are refreshes.

        Raises `BatchTooLarge`.
        """
        of, found = _members_of(met)
        size = int(lengths(payload)[of].sum()) + int(lengths(found).sum())
        if size > LARGEST:
            raise BatchTooLarge(len(of), size)
        pairs = pc.binary_join_element_wise(payload.take(pa.array(of)), found, b"")
        refreshed = np.flatnonzero(of >= len(met) - again)
        return net_rows(pairs, seq[of], weight[of], refreshed if self.spec.refreshes else None)


def _with_what_they_met(left: Resolved) -> Resolved:
    """Return the changes, in which rows retracted and inserted again keep the right rows that they matched."""
    goes, comes = left.refreshed.weight < 0, left.refreshed.weight > 0
    # The retracted and the inserted rows are in the same order.
    old, new = left.refreshed.filter(goes), left.refreshed.filter(comes)
    return replace(left, refreshed=Entries.concat([old, replace(new, sub_key=old.sub_key)]))


def _lists_of(values: pa.BinaryArray, bounds: Indices) -> pa.BinaryArray:
    """Pack values into lists; list i contains the values from position `bounds[i]` to `bounds[i + 1]` - 1.

    Each value is preceded by its length as a four-byte little-endian integer.
    """
    widths = fixed_width(lengths(values).astype("<u4"), _WIDTH, len(values))
    written = pc.binary_join_element_wise(widths, values, b"") if len(values) else binary(())
    offsets = starts_of(written)[bounds].astype(np.int32)
    data = written.buffers()[2] or pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(offsets), data])


def _members_of(lists: pa.BinaryArray) -> tuple[Indices, pa.BinaryArray]:
    """Return the index of each value's list, and the values of all lists, one list after the other."""
    starts = starts_of(lists)
    data = np.frombuffer(lists.buffers()[2] or b"", np.uint8)
    owner, at, ends = np.arange(len(lists)), starts[:-1], starts[1:]
    owners, begins, sizes = [owner[:0]], [at[:0]], [at[:0]]
    # Each iteration reads one value per list: the first value of every list, then the second value, and so on.
    while (more := at < ends[owner]).any():
        owner, at = owner[more], at[more]
        size = data[at[:, None] + np.arange(_WIDTH)].view("<u4")[:, 0].astype(np.int64)
        owners.append(owner)
        begins.append(at + _WIDTH)
        sizes.append(size)
        at = at + _WIDTH + size
    place = np.concatenate(begins)
    order = np.argsort(place)
    return np.concatenate(owners)[order], spans(data, place[order], np.concatenate(sizes)[order])
