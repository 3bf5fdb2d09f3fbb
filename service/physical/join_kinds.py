"""Kinds of joins in a physical plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

PhysicalJoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "not in", "mark", "in"]
JoinName = Literal["join", "semi_join", "anti_join", "mark_join"]
MAY_BE_SPREAD: Mapping[PhysicalJoinKind, tuple[bool, bool]] = {
    "inner": (True, True),
    "left": (True, False),
    "right": (False, True),
    "full": (False, False),
    "semi": (True, False),
    "anti": (True, False),
    "not in": (True, False),
    "mark": (True, False),
    "in": (True, False),
}
"""Whether the left and the right side of a join may be salted.

Rows of a salted side that have the same key are spread over several shards, each of which has a copy of the other side.
A side may not be salted if rows of the other side are emitted without a match, because a copy does not see matches in
other shards.
"""

JOIN_NAMES: Mapping[PhysicalJoinKind, JoinName] = {
    "inner": "join",
    "left": "join",
    "right": "join",
    "full": "join",
    "semi": "semi_join",
    "anti": "anti_join",
    "not in": "anti_join",
    "mark": "mark_join",
    "in": "mark_join",
}
"""The names of joins in plans and in their state."""
