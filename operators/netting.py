"""What is put out by an operator that hands rows on as they are: those left when equal ones of opposite sign cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.changes import Int64s, Rows, binary
from operators.join_output import PAD, Emission, Parents, put_out


def net_rows(payload: pa.BinaryArray, seq: Int64s, weight: Int64s) -> Rows:
    """The rows whose weights do not cancel; of equal rows the latest by seq stay. Raises `BatchTooLarge`."""
    rows = np.flatnonzero(weight)
    nothing = Parents.of(binary(()), np.empty(0, np.int64), b"")
    emission = Emission(rows, np.full(len(rows), PAD), weight[rows])
    return put_out(emission, Parents.of(payload, seq, b""), nothing)
