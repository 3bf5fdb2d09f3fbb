"""Truncations: what empties a whole table, as deletes of all rows that an operator keeps of it.

What arrived before the last truncation of a batch does not count any more, whether it is stored or in the batch.
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
    """The batch with deletes of all rows of the arrangement in place of truncations.

    The arrangement has the rows of one table, one for each key, and nothing of this batch.
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
