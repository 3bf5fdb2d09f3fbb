"""Conversion of plan values to text. Values with the same meaning have equal texts, even if columns and aliases differ.

The walk covers the fields of frozen dataclasses, including nested values. A field is part of the text unless its role
says otherwise (`operators.field_roles`), so a new field is part of the text by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowkind.operators.field_roles import roles
from rowkind.service.python.function import PythonFunction, called

ColumnTexts = Mapping[str, str]
"""The texts that represent columns, keyed by column name."""


class _AsNamed(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name


AS_NAMED: ColumnTexts = _AsNamed()
"""A mapping in which every column is represented by its own name."""


class Walk:
    """Converts values to text. Each kind of plan extends this walk for its own types of values."""

    def value(self, value: Any, names: ColumnTexts) -> str:
        """Return a value as text, with its columns replaced by the texts in `names`."""
        match value:
            case PythonFunction():
                return called(value)
            case tuple():
                return f"({', '.join(self.value(each, names) for each in value)})"
            case Mapping():
                return str({repr(key): self.value(each, names) for key, each in value.items()})
        return self.fields(value, names) if hasattr(value, "__dataclass_fields__") else repr(value)

    def fields(self, value: Any, names: ColumnTexts, known: Mapping[str, str] | None = None) -> str:
        """Return text for those fields of a value that count. For fields in `known`, use the text given there."""
        known = known or {}
        parts = []
        for name, role in roles(type(value)):
            found = getattr(value, name)
            # The digests of child nodes are added elsewhere. Only the absence of children counts here.
            if self.counts(name, role) and (role != "child" or found == ()):
                parts.append(f"{name}={known[name] if name in known else self.field(found, role, names)}")
        return f"{type(value).__name__}({', '.join(parts)})"

    def counts(self, _name: str, role: str) -> bool:
        """Return whether a field with this name and role counts."""
        return role not in ("aside", "merged")

    def field(self, value: Any, role: str, names: ColumnTexts) -> str:
        """Return, as text, the value of a field that has the given role."""
        match role:
            case "column" if isinstance(value, tuple):
                return str([names[each] for each in value])
            case "column":
                return "None" if value is None else names[value]
            case "results" if isinstance(value, Mapping):
                return str([self.value(each, names) for each in value.values()])
            case "results":
                return str(value is not None)
        return self.value(value, names)
