"""The facts that a null-aware anti join is told about its right side: here simply that side's rows once more."""

from __future__ import annotations

import numpy as np

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.facts import HAS_NULL, NOT_EMPTY


def with_facts(batch: Batch) -> Batch:
    """The batch, and as side 2 a fact for each right row, and one more for each whose key is NULL.

    What is true of R is one row per row of R: so that a retraction finds its fact, the facts' payload is the row's.
    """
    return Batch(_with_facts(batch.changes), _with_facts(batch.refreshes))


def _with_facts(changes: Changes) -> Changes:
    right = changes.filter(changes.side == 1)
    null = right.filter(np.array([key is None for key in right.key.to_pylist()], np.bool_))
    return Changes.concat([changes, _facts(right, NOT_EMPTY), _facts(null, HAS_NULL)])


def _facts(right: Changes, key: bytes) -> Changes:
    rows = len(right)
    return Changes(
        np.full(rows, 2, np.int8),
        right.kind,
        np.full(rows, 5, np.uint64),
        binary([key] * rows),
        binary([b""] * rows),
        right.seq,
        right.payload,
    )
