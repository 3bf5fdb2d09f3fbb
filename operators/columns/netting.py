"""What is emitted by an operator that hands rows on as they are: those left when equal ones of opposite sign cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s, RowKind, Rows, lengths
from rowkind.operators.columns.hashing import sketch64
from rowkind.operators.errors import BatchTooLarge
from rowkind.operators.join_output import LARGEST, cancelled


def net_rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s) -> Rows:
    """The rows whose weights do not cancel; of equal rows the latest by seq stay. Raises `BatchTooLarge`."""
    negative = weight < 0
    if negative.any() and not negative.all():
        weight = cancelled(sketch64(payload), weight, seq.__getitem__, lambda rows: [payload.take(pa.array(rows))])
    copies = abs(weight)
    if (copies > 1).any():
        size = int(lengths(payload) @ copies)
        if size > LARGEST:
            raise BatchTooLarge(int(copies.sum()), size)
    if (copies != 1).any():
        rows = np.repeat(np.arange(len(weight)), copies)
        payload, seq, weight = payload.take(pa.array(rows)), seq[rows], weight[rows]
    return Rows(np.where(weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8), seq, payload)
