"""A value on its way from Spark SQL to DuckDB: the SQL written so far, and the type of what it gives."""

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
    """DuckDB SQL and the type of its value. `literal` is what stands in the query where it is a text or a number."""

    sql: str
    type: Type
    literal: str | None = None


def opened(value: Typed) -> Typed:
    """An array, map or struct in the type in which its insides are computed with. Raises Refusal."""
    if not is_nested(value.type):
        return value
    if not computable(value.type):
        raise Refusal(f"a {value.type.sql} holds what can be selected as it is, but not be computed with")
    sql = value.sql
    if any(inner.logical == "local-timestamp-millis" for inner in value.type.walk()):
        sql = f"CAST({sql} AS {types.duckdb(canonical(value.type))})"
    return Typed(sql, canonical(value.type))


def converted(value: Typed, to: Type) -> Typed:
    """A value in a type that can hold it; the caller knows that it can."""
    if value.type.required == to.required:
        return value
    value = opened(value)
    sql = casts.cast(value.sql, value.type, to)
    assert sql is not None, f"{value.type.sql} converts to {to.sql}"
    return Typed(sql, with_null(to, value.type.nullable or casts.may_lose(value.type, to)))


def constant(node: exp.Expr | None, text: str, to: Type) -> str:
    """A text written out in the query as a value of another type. Raises Refusal if it is none."""
    sql = casts.constant(text, to)
    if sql is None:
        raise Refusal(f"{text!r} is no {to.sql}", node)
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


def unite(values: Sequence[Typed], at: exp.Expr | None = None) -> tuple[list[Typed], Type]:
    """All values in their common type, and the type, not null. A text written out adapts to dates and times."""
    firm = [value for value in values if value.literal is None or family(value.type) != "string"] or values
    type_ = firm[0].type.required if family(firm[0].type) != "null" else NULL
    for value in firm[1:]:
        found = common(type_, value.type)
        if found is None:
            raise Refusal(f"{type_.sql} and {value.type.sql} do not go together here: write a CAST on one of them", at)
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
