"""The keys of two facts about the entire right side, which are sent to every shard of a null-aware join."""

from __future__ import annotations

NOT_EMPTY = b"not empty"
"""The right side has at least one row."""

HAS_NULL = b"has null"
"""The right side has a row whose key is NULL."""
