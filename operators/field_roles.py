"""Roles of dataclass fields. With these roles, plan values are compared by what they compute, regardless of names.

A field without a role is compared by its value. A new field is therefore compared unless its class assigns it a role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

ROLE = "role"

ASIDE: Mapping[str, str] = {ROLE: "aside"}
"""Marks a field that comparisons ignore. Such a field is only informational, says where something runs, or can be
derived from other fields."""

COLUMN: Mapping[str, str] = {ROLE: "column"}
"""Marks a field that names one or more columns. Comparisons use the indexes of the columns, not their names."""

RESULTS: Mapping[str, str] = {ROLE: "results"}
"""Marks a field that contains the names of output columns, or a mapping from these names to the columns' definitions.
Comparisons ignore the names."""

MERGED: Mapping[str, str] = {ROLE: "merged"}
"""Marks a field that lists columns or calls. Nodes that differ only in fields with this role are merged into one
(`passes.merge_equivalent_operators`)."""

CHILD: Mapping[str, str] = {ROLE: "child"}
"""Marks a field that contains one or more child nodes. Each child node is compared by what it computes."""


FACT = "fact"

NO_FACT: Mapping[str, Any] = {FACT: None}
"""Marks a field that does not affect the state, or that another checkpoint fact covers (`service.plan.fingerprint`)."""


def fact(name: str, says: str = "", empty: str = "") -> Mapping[str, Any]:
    """Return field metadata that makes the field a checkpoint fact called `name`, even if the field is renamed.

    `says` is the fact's text if the field's value is true. `empty` is the fact's text if the value is false, None or an
    empty collection. If the applicable text is empty, the fact is omitted.
    """
    return {FACT: (name, says, empty)}


_ROLES: dict[type, tuple[tuple[str, str], ...]] = {}


def roles(of: type) -> tuple[tuple[str, str], ...]:
    """Return the name and the role of each field of a class. The role is empty if none is assigned. Cached by class."""
    if of not in _ROLES:
        _ROLES[of] = tuple((each.name, each.metadata.get(ROLE, "")) for each in fields(of))
    return _ROLES[of]


def children(node: Any) -> Iterator[Any]:
    """Yield a node's child nodes, in the order of its fields."""
    for name, role in roles(type(node)):
        if role == "child":
            below = getattr(node, name)
            yield from below if isinstance(below, tuple) else (below,)
