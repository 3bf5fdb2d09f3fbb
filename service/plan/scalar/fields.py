"""Compiles access to struct fields (also in an array of structs), array elements and map entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.compiler import Compiler, Rule, taken
from rowkind.service.plan.scalar.functions.function import call
from rowkind.service.plan.scalar.functions.nested import ELEMENT, ENTRY
from rowkind.service.plan.scalar.typed import Typed, opened, text_literal
from rowkind.service.plan.scalar.types import array_of, with_null


def with_fields(column: exp.Column, is_table: Callable[[str], bool]) -> tuple[exp.Column, list[exp.Identifier]]:
    """Split a dotted name into a column and a path of nested fields.

    As in Spark, if the first part is the name of both a table and a column, it refers to the table.
    """
    parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
    count = 2 if len(parts) > 1 and is_table(parts[0].name) else 1
    bare = exp.Column(this=parts[count - 1].copy(), table=parts[0].copy() if count > 1 else None)
    return bare, [part.copy() for part in parts[count:]]


def field_of(column: exp.Expr, fields: Sequence[exp.Identifier]) -> exp.Expr:
    """Return the expression for a column's nested field; `fields` is the path to this field, outermost field first."""
    for field in fields:
        column = exp.Dot(this=column, expression=field)
    return column


def _field(compiler: Compiler, node: exp.Dot) -> Typed:
    value = compiler.value(node.this)
    name = node.expression.name
    if value.type.kind == "array" and value.type.element.kind == "record":
        # As in Spark, the result is an array with this field of each struct.
        value = opened(value)
        (each,) = variables(value.sql)
        inner = _of_struct(Typed(each, value.type.element), name, node)
        sql = f"list_transform({value.sql}, lambda {each}: {inner.sql})"
        return Typed(sql, with_null(array_of(inner.type), value.type.nullable))
    if value.type.kind != "record":
        raise Refusal(f"type {value.type.sql} has no field {name}", node)
    return _of_struct(value, name, node)


def _of_struct(value: Typed, name: str, node: exp.Dot) -> Typed:
    found = [field for field in value.type.fields if field.name.lower() == name.lower()]
    if len(found) != 1:
        known = ", ".join(field.name for field in value.type.fields)
        raise Refusal(f"there is {'no' if not found else 'more than one'} field {name}; available: {known}", node)
    type_ = with_null(found[0].type, value.type.nullable or found[0].type.nullable)
    return taken(f"struct_extract({value.sql}, {text_literal(found[0].name)})", type_)


def _element(compiler: Compiler, node: exp.Bracket) -> Typed:
    if len(node.expressions) != 1:
        raise Refusal("brackets after a value must contain exactly one index or key, as in a[0]", node)
    return call(compiler, node, "[]", [node.this, node.expressions[0]], (ELEMENT, ENTRY))


RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Dot: (_field, ("this", "expression")),
    exp.Bracket: (_element, ("this", "expressions")),
}
