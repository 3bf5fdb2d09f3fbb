"""Casts of arrays, maps and structs: each inner value is cast separately, and NULL stays NULL."""

from __future__ import annotations

import re
from collections.abc import Callable

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar import types

Inner = Callable[[str, Type, Type], "str | None"]
"""A function that casts an inner value, given the value's SQL, its type and the target type. It returns SQL, or None if
Spark has no such cast.
"""


def variables(*texts: str, count: int = 1) -> list[str]:
    """Return names for the parameters of a DuckDB lambda that occur in none of the SQL texts used in the lambda."""
    last = max([int(number) for text in texts for number in re.findall(r"(?i)each_(\d+)", text)], default=0)
    return [f"each_{number}" for number in range(last + 1, last + count + 1)]


def cast(sql: str, source: Type, to: Type, inner: Inner) -> str | None:
    """Return DuckDB SQL that casts an array, map or struct to text, or to another array, map or struct type.

    Return None if Spark has no such cast.
    """
    if types.family(to) == "string":
        return _text(sql, source, inner)
    if source.kind != to.kind:
        return None
    (each,) = variables(sql)
    match source.kind:
        case "array":
            element = inner(each, source.element, to.element)
            return None if element is None else f"list_transform({sql}, lambda {each}: {element})"
        case "map":
            value = inner(f"{each}.value", source.element, to.element)
            if value is None:
                return None
            entry = f"{{'key': {each}.key, 'value': {value}}}"
            entries = f"list_transform(map_entries({sql}), lambda {each}: {entry})"
            return f"(CASE WHEN {sql} IS NOT NULL THEN map_from_entries({entries}) END)"
    if len(source.fields) != len(to.fields):
        return None
    parts = []
    for mine, theirs in zip(source.fields, to.fields, strict=True):
        value = inner(field(sql, mine.name), mine.type, theirs.type)
        if value is None:
            return None
        parts.append(f"'{theirs.name}': {value}")
    return f"(CASE WHEN {sql} IS NOT NULL THEN {{{', '.join(parts)}}} END)"


def field(sql: str, name: str) -> str:
    """Return DuckDB SQL for a struct's field."""
    return f"struct_extract({sql}, '{name}')"


def _text(sql: str, source: Type, inner: Inner) -> str | None:
    """Return DuckDB SQL for a nested value in Spark's text form: [a, null], {k -> v} or {a, b}."""
    string = types.STRING

    def written(value: str, type_: Type) -> str | None:
        found = inner(value, type_, string)
        return None if found is None else f"COALESCE({found}, 'null')"

    (each,) = variables(sql)
    if source.kind == "record":
        parts = [written(field(sql, each.name), each.type) for each in source.fields]
        if None in parts:
            return None
        listed = " || ', ' || ".join(str(part) for part in parts)
        return f"(CASE WHEN {sql} IS NOT NULL THEN '{{' || {listed} || '}}' END)"
    value = written(each if source.kind == "array" else f"{each}.value", source.element)
    if value is None:
        return None
    if source.kind == "array":
        joined = f"array_to_string(list_transform({sql}, lambda {each}: {value}), ', ')"
        return f"('[' || {joined} || ']')"
    entries = f"list_transform(map_entries({sql}), lambda {each}: {each}.key || ' -> ' || {value})"
    return f"(CASE WHEN {sql} IS NOT NULL THEN '{{' || array_to_string({entries}, ', ') || '}}' END)"
