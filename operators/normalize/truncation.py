"""Truncations, which delete all rows of a table, expanded into deletes of the rows that an operator stores.

Stored rows, and rows of the batch that arrived before the batch's last truncation, no longer count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes

_EVERYWHERE = np.zeros(1, np.uint64), np.full(1, np.iinfo(np.uint64).max, np.uint64)


def spelled_out_truncations(rows: Arrangement, batch: Batch) -> Batch:
    """Return the batch with its truncations replaced by deletes of all rows of the arrangement.

    The arrangement must contain the rows of a single table, with one row per key, and none of this batch's rows.
    """
    if not batch.truncations:
        return batch
    changes, last = batch.changes, max(batch.truncations.values())
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
    return replace(batch, changes=Changes.concat([deletes, changes.filter(changes.seq >= last)]), truncations={})
