"""Compiled expressions, which are DuckDB SQL with its result type, and conversions between types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import casts, types
from rowkind.service.plan.scalar.types import NULL, STRING, canonical, common, computable, family, is_nested, with_null


@dataclass(frozen=True)
class Typed:
    """A compiled expression: DuckDB SQL, and the type of the SQL's value.

    `literal` is the content of a string or number literal in the query, and None for any other expression.
    """

    sql: str
    type: Type
    literal: str | None = None


def opened(value: Typed) -> Typed:
    """Convert the inner values of an array, map or struct to types that expressions can use. Raises Refusal."""
    if not is_nested(value.type):
        return value
    if not computable(value.type):
        raise Refusal(
            f"type {value.type.sql} contains a type that cannot be used in expressions: its values can only be "
            "selected unchanged"
        )
    sql = value.sql
    if any(inner.logical == "local-timestamp-millis" for inner in value.type.walk()):
        sql = f"CAST({sql} AS {types.duckdb(canonical(value.type))})"
    return Typed(sql, canonical(value.type))


def converted(value: Typed, to: Type) -> Typed:
    """Convert a value to another type. The caller has checked that this type can represent the value."""
    if value.type.required == to.required:
        return value
    value = opened(value)
    sql = casts.cast(value.sql, value.type, to)
    assert sql is not None, f"{value.type.sql} converts to {to.sql}"
    return Typed(sql, with_null(to, value.type.nullable or casts.may_lose(value.type, to)))


def constant(node: exp.Expr | None, text: str, to: Type) -> str:
    """Return DuckDB SQL for a string literal as a value of type `to`. Raises Refusal if it is not such a value."""
    sql = casts.constant(text, to)
    if sql is None:
        raise Refusal(f"{text!r} is not a value of type {to.sql}", node)
    return sql


def nullable(type_: Type, *values: Typed) -> Type:
    """Return an operation's result type, which is nullable if the type of one of the values is nullable."""
    return with_null(type_, any(value.type.nullable for value in values))


def quoted(name: str) -> str:
    """Return a name as an identifier in DuckDB SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Return a string literal in DuckDB SQL."""
    return "'" + value.replace("'", "''") + "'"


def unite(values: Sequence[Typed], at: exp.Expr | None = None) -> tuple[list[Typed], Type]:
    """Cast all values to Spark's common type; return the cast values, and that type as NOT NULL.

    A string literal is converted to the type of the other values. Raises Refusal if there is no common type.
    """
    firm = [value for value in values if value.literal is None or family(value.type) != "string"] or values
    type_ = firm[0].type.required if family(firm[0].type) != "null" else NULL
    for value in firm[1:]:
        found = common(type_, value.type)
        if found is None:
            raise Refusal(f"{type_.sql} and {value.type.sql} cannot be combined here: cast one of them", at)
        type_ = found
    if family(type_) == "null" and len(firm) < len(values):
        type_ = STRING
    adapted = []
    for value in values:
        if value.literal is not None and family(value.type) == "string" and family(type_) not in ("string", "null"):
            adapted.append(Typed(constant(at, value.literal, type_), type_))
        else:
            adapted.append(converted(value, type_))
    return adapted, type_
