"""Descriptions of columns, in words and as values."""

from __future__ import annotations

from rowkind.avro.schema import Record
from rowkind.service.plan.explain.values import NamedColumn

TIED = "\u00a0"
"""A no-break space, which keeps a column and its type on the same line."""


def columns(record: Record) -> str:
    """Return a record's columns with their types, as text."""
    return ", ".join(f"{each.name} {each.type}".replace(" ", TIED) for each in record.fields)


def column_values(record: Record) -> list[NamedColumn]:
    """Return a record's columns with their types, in machine-readable form."""
    return [NamedColumn(each.name, str(each.type)) for each in record.fields]
