"""What a field of plain data is where values are compared by what they compute, whatever things are called.

A field without a role counts as it is. So a new field counts unless its class says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

ROLE = "role"

ASIDE: Mapping[str, str] = {ROLE: "aside"}
"""It does not count: it is for people, or says where something runs, or follows from the other fields."""

COLUMN: Mapping[str, str] = {ROLE: "column"}
"""The name of a column, or several: the place of the column counts, and not its name."""

RESULTS: Mapping[str, str] = {ROLE: "results"}
"""What columns that come out are called, or what they are by these names. The names do not count."""

MERGED: Mapping[str, str] = {ROLE: "merged"}
"""Columns and calls that are read. `passes.merge_equivalent_operators` makes nodes one that differ in these alone."""

CHILD: Mapping[str, str] = {ROLE: "child"}
"""A node right below, or several; it counts by what it computes."""


FACT = "fact"

NO_FACT: Mapping[str, Any] = {FACT: None}
"""State does not depend on it, or another fact of a checkpoint says the same (`service.plan.fingerprint`)."""


def fact(name: str, says: str = "", empty: str = "") -> Mapping[str, Any]:
    """The name of a field among the facts of a checkpoint, for good: it outlives a change of the field's own name.

    `says` is its text if it is true, `empty` if it is false, None or without elements; without either it is left out.
    """
    return {FACT: (name, says, empty)}


_ROLES: dict[type, tuple[tuple[str, str], ...]] = {}


def roles(of: type) -> tuple[tuple[str, str], ...]:
    """The fields of a class, each with its role, empty where it has none. Computed once per class."""
    if of not in _ROLES:
        _ROLES[of] = tuple((each.name, each.metadata.get(ROLE, "")) for each in fields(of))
    return _ROLES[of]


def children(node: Any) -> Iterator[Any]:
    """The nodes right below a node, in the order of its fields."""
    for name, role in roles(type(node)):
        if role == "child":
            below = getattr(node, name)
            yield from below if isinstance(below, tuple) else (below,)
