"""Roles of dataclass fields, used to compare plan values by what they compute, regardless of names.

A field without a role is compared by its value. A new field is therefore compared unless its class says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

ROLE = "role"

ASIDE: Mapping[str, str] = {ROLE: "aside"}
"""Marks a field that is ignored: it is informational, says where something runs, or follows from other fields."""

COLUMN: Mapping[str, str] = {ROLE: "column"}
"""Marks a field that names one or more columns. Their indexes are compared, not their names."""

RESULTS: Mapping[str, str] = {ROLE: "results"}
"""Marks a field with the names of output columns, or with their definitions by name. The names are ignored."""

MERGED: Mapping[str, str] = {ROLE: "merged"}
"""Marks a field with columns or calls to read. Nodes that differ only in such fields are merged
(`passes.merge_equivalent_operators`)."""

CHILD: Mapping[str, str] = {ROLE: "child"}
"""Marks a field with one or more child nodes. Each is compared by what it computes."""


FACT = "fact"

NO_FACT: Mapping[str, Any] = {FACT: None}
"""Marks a field that does not affect the state, or that another checkpoint fact covers (`service.plan.fingerprint`)."""


def fact(name: str, says: str = "", empty: str = "") -> Mapping[str, Any]:
    """Return metadata with a field's name among the facts of a checkpoint. The name stays if the field is renamed.

    `says` is the fact's text if the field is true. `empty` is its text if the field is false, None or an empty
    collection. If the text is empty, the fact is left out.
    """
    return {FACT: (name, says, empty)}


_ROLES: dict[type, tuple[tuple[str, str], ...]] = {}


def roles(of: type) -> tuple[tuple[str, str], ...]:
    """Return the fields of a class, each with its role or an empty string. The result is computed once per class."""
    if of not in _ROLES:
        _ROLES[of] = tuple((each.name, each.metadata.get(ROLE, "")) for each in fields(of))
    return _ROLES[of]


def children(node: Any) -> Iterator[Any]:
    """Yield a node's child nodes, in the order of its fields."""
    for name, role in roles(type(node)):
        if role == "child":
            below = getattr(node, name)
            yield from below if isinstance(below, tuple) else (below,)
