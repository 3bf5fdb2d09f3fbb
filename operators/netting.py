"""What is emitted by an operator that hands rows on as they are: those left when equal ones of opposite sign cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Rows, lengths
from rowkind.operators.columns.consolidation import cancelled_pairs, net_weights, spelled_out
from rowkind.operators.columns.hashing import sketch64
from rowkind.operators.errors import BatchTooLarge

LARGEST = (1 << 31) - 1
"""Bytes of payload that rows emitted together may have."""


def net_rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s, again: Indices | None = None) -> Rows:
    """The rows whose weights do not cancel, of equal rows the latest by seq; those that go before those that come.

    `again` are rows to be emitted as refreshes, and so are then the pairs that cancel; None where nobody waits for any.
    Raises `BatchTooLarge`.
    """
    left = weight
    if (weight < 0).any():
        left = net_weights(sketch64(payload), weight, lambda rows: [payload.take(pa.array(rows))], seq.__getitem__)
    refreshed = np.empty(0, np.int64) if again is None else np.concatenate([again, cancelled_pairs(weight, left)])
    rows, kind = emitted(left, refreshed, lengths(payload))
    if len(rows) == len(payload) and (rows[1:] > rows[:-1]).all():
        return Rows(kind, seq, payload)
    return Rows(kind, seq[rows], payload.take(pa.array(rows)))


def emitted(weight: Int64s, refreshed: Indices, sizes: Int64s) -> tuple[Indices, Int8s]:
    """Rows of these weights each as often as it goes or comes, then those that are refreshed; and their row kinds.

    `sizes` are their bytes. Raises `BatchTooLarge`.
    """
    size = int(sizes @ abs(weight)) + int(sizes[refreshed].sum())
    rows = spelled_out(weight)
    if size > LARGEST:
        raise BatchTooLarge(len(rows) + len(refreshed), size)
    kind = np.where(weight[rows] > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8)
    if len(refreshed) == 0:
        return rows, kind
    return np.concatenate([rows, refreshed]), np.concatenate([kind, np.full(len(refreshed), RowKind.REFRESH, np.int8)])
