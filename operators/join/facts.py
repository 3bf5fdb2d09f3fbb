"""Keys of the facts about the whole right side that are sent to every shard of a null-aware anti join."""

from __future__ import annotations

NOT_EMPTY = b"not empty"
"""The right side has at least one row."""

HAS_NULL = b"has null"
"""The right side has a row whose key is NULL."""
