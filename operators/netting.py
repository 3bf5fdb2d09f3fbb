"""What is emitted by an operator that hands rows on as they are: those left when equal ones of opposite sign cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s, RowKind, Rows, lengths
from rowkind.operators.columns.consolidation import net_weights, spelled_out
from rowkind.operators.columns.hashing import sketch64
from rowkind.operators.errors import BatchTooLarge
from rowkind.operators.join_output import LARGEST


def net_rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s) -> Rows:
    """The rows whose weights do not cancel, of equal rows the latest by seq; those that go before those that come.

    Raises `BatchTooLarge`.
    """
    if (weight < 0).any():
        weight = net_weights(sketch64(payload), weight, lambda rows: [payload.take(pa.array(rows))], seq.__getitem__)
    copies = abs(weight)
    if (copies > 1).any():
        size = int(lengths(payload) @ copies)
        if size > LARGEST:
            raise BatchTooLarge(int(copies.sum()), size)
    rows = spelled_out(weight)
    if len(rows) != len(weight) or (rows[1:] < rows[:-1]).any():
        payload, seq, weight = payload.take(pa.array(rows)), seq[rows], weight[rows]
    return Rows(np.where(weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8), seq, payload)
