"""The net output of operators that emit stored rows: the rows that remain after equal rows of opposite sign cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, Rows, lengths
from rowkind.operators.columns.consolidation import cancelled_pairs, net_weights, spelled_out
from rowkind.operators.columns.hashing import mix, sketch64
from rowkind.operators.errors import BatchTooLarge

LARGEST = (1 << 31) - 1
"""The maximum number of payload bytes that may be emitted in one batch."""


def net_rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s, again: Indices | None = None) -> Emitted:
    """Return the rows that do not cancel, retractions first. Of equal rows, the latest by seq remain.

    `again` contains the indices of rows to emit as refreshes. If `again` is given, cancelled pairs are also emitted as
    refreshes. If no downstream operator needs refreshes, `again` is None. Raises `BatchTooLarge`.
    """
    left = weight
    if (weight < 0).any():
        left = net_weights(sketch64(payload), weight, lambda rows: [payload.take(pa.array(rows))], seq.__getitem__)
    refreshed = np.empty(0, np.int64) if again is None else np.concatenate([again, cancelled_pairs(weight, left)])
    return _rows(payload, seq, left, refreshed)


def net_rows_apart(
    failed: Mask, payload: pa.BinaryArray, seq: Int64s, weight: Int64s, again: Indices | None = None
) -> tuple[Emitted, Rows]:
    """Return the net rows and refreshes among rows that did not fail, and the net rows among rows that failed.

    Raises `BatchTooLarge`.
    """
    if not failed.any():
        return net_rows(payload, seq, weight, again), Rows.empty()
    good, bad = (net_rows(payload.filter(pa.array(part)), seq[part], weight[part], again) for part in (~failed, failed))
    return good, bad.rows


def rewritten_rows(changed: Entries, refreshed: Entries, *, arrivals: bool, refreshes: bool) -> Emitted:
    """Return the rows that an operator emits if its output rows are its input's rows.

    `changed` contains the retracted and inserted rows. `refreshed` contains the rows that were written again with equal
    values, each as a retracted and an inserted entry (`Resolved.refreshed`). If `arrivals` is set, a row with a new
    arrival number is a different row: it is retracted with its old number and inserted with its new number. If
    `refreshes` is set, an unchanged row is emitted as a refresh. Raises `BatchTooLarge`.
    """
    again = np.empty(0, np.int64) if refreshes else None
    if not arrivals:
        step = Entries.concat([changed, refreshed]) if refreshes else changed
        return net_rows(step.payload, step.seq, step.weight, again)
    step = Entries.concat([changed, refreshed])
    left = net_weights(
        mix(sketch64(step.payload), step.seq.view(np.uint64)),
        step.weight,
        lambda rows: [step.payload.take(pa.array(rows)), step.seq[rows]],
        step.seq.__getitem__,
    )
    refreshed_rows = cancelled_pairs(step.weight, left) if refreshes else np.empty(0, np.int64)
    return _rows(step.payload, step.seq, left, refreshed_rows)


def _rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s, refreshed: Indices) -> Emitted:
    """Return the rows, each as many times as its weight says, and the rows at `refreshed` as refreshes."""
    rows = spelled(weight, lengths(payload), refreshed)
    kind = kinds(weight[rows])
    if len(rows) == len(payload) and (rows[1:] > rows[:-1]).all():
        net = Rows(kind, seq, payload)
    else:
        net = Rows(kind, seq[rows], payload.take(pa.array(rows)))
    if not len(refreshed):
        return Emitted(net)
    return Emitted(net, inserted(seq[refreshed], payload.take(pa.array(refreshed))))


def spelled(weight: Int64s, sizes: Int64s, refreshed: Indices) -> Indices:
    """Return the index of each row, repeated as many times as the row is retracted or inserted.

    `sizes` contains the size of each row in bytes. `refreshed` contains the indices of rows that are also emitted as
    refreshes; they are not in the result, but count towards the total size. Raises `BatchTooLarge` if the total size
    exceeds `LARGEST` bytes.
    """
    size = int(sizes @ abs(weight)) + int(sizes[refreshed].sum())
    rows = spelled_out(weight)
    if size > LARGEST:
        raise BatchTooLarge(len(rows) + len(refreshed), size)
    return rows


def kinds(weight: Int64s) -> Int8s:
    """Return the row kind for each weight: +I if the weight is positive, otherwise -D."""
    return np.where(weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8)


def inserted(seq: Int64s, payload: pa.BinaryArray) -> Rows:
    """Return rows with the given arrival numbers and payloads as insertions."""
    return Rows(np.full(len(seq), RowKind.INSERT, np.int8), seq, payload)
