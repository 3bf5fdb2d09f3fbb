"""Truncations: what empties a whole table, as deletes of all rows that an operator keeps of it.

What arrived before the last truncation of a batch counts no more, whether it is stored or in the batch.
"""

from __future__ import annotations

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes

_EVERYWHERE = np.zeros(1, np.uint64), np.full(1, np.iinfo(np.uint64).max, np.uint64)


def spelled_out_truncations(rows: Arrangement, changes: Changes) -> Changes:
    """The changes with deletes of all rows of the arrangement in place of truncations.

    The arrangement has the rows of one table, one for each key, and nothing of this batch.
    """
    truncations = changes.kind == RowKind.TRUNCATION
    if not truncations.any():
        return changes
    last = int(changes.seq[truncations].max())
    stored = rows.between(*_EVERYWHERE)
    count = len(stored)
    deletes = Changes(
        np.zeros(count, changes.side.dtype),
        np.full(count, RowKind.DELETE, np.int8),
        stored.hash,
        stored.key,
        stored.sub_key,
        np.full(count, last, np.int64),
        stored.payload,
    )
    return Changes.concat([deletes, changes.filter((changes.seq >= last) & ~truncations)])
