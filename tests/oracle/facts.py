"""The facts that a null-aware anti join receives about its right side; here they are that side's rows, sent again."""

from __future__ import annotations

import numpy as np

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.join.facts import HAS_NULL, NOT_EMPTY


def with_facts(batch: Batch) -> Batch:
    """Return the batch plus one fact (side 2) per right row, and a second fact for each right row whose key is NULL.

    A fact carries the payload of its right row, so that a retraction of the row finds the fact.
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
