"""A value on its way from Spark SQL to DuckDB: the SQL written so far, and the type of what it gives."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from avro.schema import Type
from service.plan import casts
from service.plan.errors import Refusal
from service.plan.types import with_null


@dataclass(frozen=True)
class Typed:
    """DuckDB SQL and the type of its value. `literal` is the text of a string literal."""

    sql: str
    type: Type
    literal: str | None = None


def converted(value: Typed, to: Type) -> Typed:
    """A value in a type that can hold it; the caller knows that it can."""
    if value.type.required == to.required:
        return value
    sql = casts.cast(value.sql, value.type, to)
    assert sql is not None, f"{value.type.sql} converts to {to.sql}"
    return Typed(sql, with_null(to, value.type.nullable))


def constant(node: exp.Expr, text: str, to: Type) -> str:
    """A text written out in the query as a value of another type. Raises Refusal if it is none."""
    sql = casts.constant(text, to)
    if sql is None:
        raise Refusal(f"{text!r} is not a {to.sql}", node)
    return sql


def nullable(type_: Type, *values: Typed) -> Type:
    """The type of an operation that is NULL where one of the values is."""
    return with_null(type_, any(value.type.nullable for value in values))


def quoted(name: str) -> str:
    """A name of a column in DuckDB SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """A text in DuckDB SQL."""
    return "'" + value.replace("'", "''") + "'"
