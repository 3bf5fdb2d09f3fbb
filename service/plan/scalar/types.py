"""SQL types in expressions: type families, Spark SQL's common type of two types, and type names in DuckDB.

Expressions support fewer types than columns do. A column of any type can be selected, but expressions can use or
compare only columns whose type belongs to a `family`. Arrays, maps and structs belong to no family, but functions can
read their inner values and create new ones. Inner values of new arrays, maps and structs may always be NULL. The rules
are those of Spark SQL in its default mode, ANSI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from rowkind.avro.schema import Field, Type

Family = Literal[
    "boolean", "integer", "decimal", "float", "string", "binary", "date", "timestamp", "local", "time", "null"
]

BOOLEAN = Type.of("BOOLEAN NOT NULL")
INT = Type.of("INT NOT NULL")
BIGINT = Type.of("BIGINT NOT NULL")
FLOAT = Type.of("FLOAT NOT NULL")
DOUBLE = Type.of("DOUBLE NOT NULL")
STRING = Type.of("STRING NOT NULL")
BINARY = Type.of("BINARY NOT NULL")
DATE = Type.of("DATE NOT NULL")
TIMESTAMP = Type.of("TIMESTAMP NOT NULL")
LOCAL = Type.of("TIMESTAMP_NTZ NOT NULL")
TIME = Type.of("TIME(6) NOT NULL")
NULL = Type("null", nullable=True)

_PLAIN: dict[str, tuple[Family, Type, str]] = {
    "BOOLEAN": ("boolean", BOOLEAN, "BOOLEAN"),
    "INT": ("integer", INT, "INTEGER"),
    "BIGINT": ("integer", BIGINT, "BIGINT"),
    "FLOAT": ("float", FLOAT, "REAL"),
    "DOUBLE": ("float", DOUBLE, "DOUBLE"),
    "STRING": ("string", STRING, "VARCHAR"),
    "BINARY": ("binary", BINARY, "BLOB"),
    "DATE": ("date", DATE, "DATE"),
    "TIMESTAMP": ("timestamp", TIMESTAMP, "TIMESTAMPTZ"),
    "TIMESTAMP_NTZ": ("local", LOCAL, "TIMESTAMP"),
    "TIME(3)": ("time", TIME, "TIME"),
    "TIME(6)": ("time", TIME, "TIME"),
    "VOID": ("null", NULL, "NULL"),
}
_MOST_DIGITS = 38


def decimal(precision: int, scale: int) -> Type | None:
    """Return DECIMAL(precision,scale) NOT NULL, or None if expressions do not support that many digits."""
    return Type.of(f"DECIMAL({precision},{scale}) NOT NULL") if precision <= _MOST_DIGITS else None


def family(type_: Type) -> Family | None:
    """Return a type's family, or None for a type that belongs to none."""
    if type_.logical == "decimal":
        return "decimal" if type_.precision <= _MOST_DIGITS else None
    if type_.logical in ("timestamp-nanos", "local-timestamp-nanos", "duration"):
        return None
    known = _PLAIN.get(type_.sql)
    return known[0] if known else None


def is_nested(type_: Type) -> bool:
    """Return whether a type is an array, a map or a struct."""
    return type_.kind in ("array", "map", "record")


def computable(type_: Type) -> bool:
    """Return whether expressions can use the values of a type or, if the type is nested, its inner values."""
    if type_.kind == "record":
        return all(computable(field.type) for field in type_.fields)
    return computable(type_.element) if is_nested(type_) else family(type_) is not None


def canonical(type_: Type) -> Type:
    """Return the type that a column of type `type_` has in expressions.

    For example, times in milliseconds become times in microseconds, and enums become text.
    """
    if type_.kind == "record":
        plain = struct_of((field.name, canonical(field.type)) for field in type_.fields)
    elif type_.kind == "map":
        plain = map_of(canonical(type_.element))
    elif type_.kind == "array":
        plain = array_of(canonical(type_.element))
    elif type_.logical == "decimal":
        plain = Type.of(f"DECIMAL({type_.precision},{type_.scale}) NOT NULL")
    else:
        plain = _PLAIN[type_.sql][1]
    return with_null(plain, type_.nullable)


def array_of(element: Type) -> Type:
    """Return the type ARRAY NOT NULL, with elements that may be NULL."""
    return Type("array", items=with_null(element, nullable=True))


def map_of(value: Type) -> Type:
    """Return the type MAP NOT NULL, with text as keys and values that may be NULL."""
    return Type("map", items=with_null(value, nullable=True))


def struct_of(fields: Iterable[tuple[str, Type]]) -> Type:
    """Return the type STRUCT NOT NULL, with fields that may be NULL."""
    found = (Field(name, with_null(type_, nullable=True), "null") for name, type_ in fields)
    return Type("record", name="Struct", fields=tuple(found))


def with_null(type_: Type, nullable: bool) -> Type:
    """Return the type with NULL allowed if `nullable` is set, and disallowed otherwise."""
    return type_.as_nullable() if nullable else type_.required


def duckdb(type_: Type) -> str:
    """Return a type's name in DuckDB."""
    match type_.kind:
        case "array":
            return f"{duckdb(type_.element)}[]"
        case "map":
            return f"MAP(VARCHAR, {duckdb(type_.element)})"
        case "record":
            fields = ", ".join(f'"{field.name}" {duckdb(field.type)}' for field in type_.fields)
            return f"STRUCT({fields})"
    return type_.sql if type_.logical == "decimal" else _PLAIN[type_.sql][2]


def failure(text: str, name: str) -> str:
    """Return DuckDB SQL of type `name` that always fails. `text` is DuckDB SQL for the error message."""
    return f"CAST(spark_fails({text}) AS {name})"


def as_decimal(type_: Type) -> Type | None:
    """Return the decimal type that can represent every value of an integer or decimal type, or None for other types."""
    if type_.logical == "decimal":
        return replace(canonical(type_), nullable=False)
    return {"INT": decimal(10, 0), "BIGINT": decimal(20, 0)}.get(type_.sql)


def common(left: Type, right: Type) -> Type | None:
    """Return the type, as NOT NULL, to which Spark SQL converts two types to combine or compare their values.

    Return None if there is no such type.

    Text has no common type with other types here, although Spark converts it. Parsing the text could fail on a row, so
    the query must use CAST.
    """
    families = {family(left), family(right)}
    if "null" in families:
        other = right if family(left) == "null" else left
        return canonical(other).required if computable(other) else None
    if None in families:
        return _common_nested(left, right)
    if families <= {"integer", "decimal"} and "decimal" in families:
        return _common_decimal(left, right)
    if len(families) > 1:
        return _COMMON.get(frozenset(families))
    left, right = canonical(left).required, canonical(right).required
    if left == right:
        return left
    return BIGINT if families == {"integer"} else DOUBLE


_COMMON: Mapping[frozenset[Family | None], Type] = {
    frozenset(["integer", "float"]): DOUBLE,
    frozenset(["decimal", "float"]): DOUBLE,
    frozenset(["date", "timestamp"]): TIMESTAMP,
    frozenset(["date", "local"]): LOCAL,
}
"""Spark's common type for each pair of different families that has one."""


def _common_decimal(left: Type, right: Type) -> Type | None:
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None and b is not None, "integers and decimals can be converted to a decimal"  # noqa: PT018 -- one fact
    scale = max(a.scale, b.scale)
    return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _common_nested(left: Type, right: Type) -> Type | None:
    """Return the common type of two arrays, maps or structs. Structs must have the same field names."""
    if left.kind != right.kind or not (is_nested(left) and is_nested(right)):
        return None
    if left.kind == "record":
        if [field.name for field in left.fields] != [field.name for field in right.fields]:
            return None
        found = [common(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True)]
        known = [(field.name, type_) for field, type_ in zip(left.fields, found, strict=True) if type_ is not None]
        return struct_of(known) if len(known) == len(found) else None
    element = common(left.element, right.element)
    if element is None:
        return None
    return array_of(element) if left.kind == "array" else map_of(element)
