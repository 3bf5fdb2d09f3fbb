"""The keys of the two facts about a null-aware join's right side; the facts are sent to every shard."""

from __future__ import annotations

NOT_EMPTY = b"not empty"
"""The key of the fact that the right side has at least one row."""

HAS_NULL = b"has null"
"""The key of the fact that the right side has a row whose key is NULL."""
