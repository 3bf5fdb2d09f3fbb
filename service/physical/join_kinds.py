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

The salted side's rows with the same key are spread over several shards. Each of these shards has a copy of the other
side's rows. A side must not be salted if the join emits unmatched rows of the other side, because a copy does not see
matches in other shards.
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
"""The names of the join kinds in plans and in state."""
