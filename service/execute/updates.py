"""Detection of rows that are the two halves of an update."""

from __future__ import annotations

import numpy as np

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Int64s, Rows


def updates(rows: Rows) -> Int64s:
    """Number the updates. A -U and the +U directly after it get the same number, and all other rows get 0."""
    update = np.zeros(len(rows), np.int64)
    first = np.flatnonzero(
        (rows.kind[:-1] == RowKind.UPDATE_BEFORE)
        & (rows.kind[1:] == RowKind.UPDATE_AFTER)
        & (ArrivalNumber.partitions(rows.seq[:-1] ^ rows.seq[1:]) == 0)
    )
    update[first] = update[first + 1] = first + 1
    return update
