"""The facts that each shard of a null-aware anti join is told of its whole right side, by their keys."""

from __future__ import annotations

NOT_EMPTY = b"not empty"
"""The right side has a row."""

HAS_NULL = b"has null"
"""The right side has a row whose key is NULL."""
