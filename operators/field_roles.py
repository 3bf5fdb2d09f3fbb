"""Roles of dataclass fields, for comparing plan values by their computation, independent of names.

A field without a role is compared by its value. A new field is therefore compared unless its class says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

ROLE = "role"

ASIDE: Mapping[str, str] = {ROLE: "aside"}
"""The field is ignored: it is informative, says where something runs, or follows from the other fields."""

COLUMN: Mapping[str, str] = {ROLE: "column"}
"""The name of one or several columns: the index of the column is compared, not its name."""

RESULTS: Mapping[str, str] = {ROLE: "results"}
"""The names of output columns, or their definitions by name. The names are ignored."""

MERGED: Mapping[str, str] = {ROLE: "merged"}
"""Columns and calls that are read. `passes.merge_equivalent_operators` merges nodes that differ only in these."""

CHILD: Mapping[str, str] = {ROLE: "child"}
"""One or several nodes directly below; each is compared by its computation."""


FACT = "fact"

NO_FACT: Mapping[str, Any] = {FACT: None}
"""The state does not depend on the field, or another checkpoint fact covers it (`service.plan.fingerprint`)."""


def fact(name: str, says: str = "", empty: str = "") -> Mapping[str, Any]:
    """Return the permanent name of a field among the facts of a checkpoint: it stays if the field is renamed.

    `says` is the fact's text if the field is true; `empty` is its text if the field is false, None or without elements.
    Without such a text, the fact is left out.
    """
    return {FACT: (name, says, empty)}


_ROLES: dict[type, tuple[tuple[str, str], ...]] = {}


def roles(of: type) -> tuple[tuple[str, str], ...]:
    """Return the fields of a class, each with its role, or an empty role. Computed once per class."""
    if of not in _ROLES:
        _ROLES[of] = tuple((each.name, each.metadata.get(ROLE, "")) for each in fields(of))
    return _ROLES[of]


def children(node: Any) -> Iterator[Any]:
    """Yield the nodes directly below a node, in the order of its fields."""
    for name, role in roles(type(node)):
        if role == "child":
            below = getattr(node, name)
            yield from below if isinstance(below, tuple) else (below,)
