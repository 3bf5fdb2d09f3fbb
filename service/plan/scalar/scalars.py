"""Compiles scalar expressions to DuckDB SQL that has the same result types and values as in Spark SQL.

Expressions that are not known to have the same result are refused. Columns must already be resolved: a column is an
`exp.Column` without a table that has the name of one of the plan's columns (`resolved`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.expression import Expression
from rowkind.service.plan.scalar import arithmetic as scalar_arithmetic
from rowkind.service.plan.scalar import calls as scalar_calls
from rowkind.service.plan.scalar import conditions as scalar_conditions
from rowkind.service.plan.scalar import exact_decimals as scalar_exact_decimals
from rowkind.service.plan.scalar import fields as scalar_fields
from rowkind.service.plan.scalar import time_windows as scalar_time_windows
from rowkind.service.plan.scalar import values as scalar_values
from rowkind.service.plan.scalar.compiler import Columns, Compiler
from rowkind.service.plan.scalar.conditions import joined
from rowkind.service.plan.scalar.job_functions import functions_in
from rowkind.service.plan.scalar.typed import Typed, converted, quoted
from rowkind.service.plan.scalar.types import with_null
from rowkind.service.plan.syntax import sql_text

__all__ = ["Columns", "compile_cast", "compile_condition", "compile_scalar", "resolved", "show", "type_of"]

_RULES = {
    **scalar_conditions.RULES,
    **scalar_values.RULES,
    **scalar_arithmetic.RULES,
    **scalar_fields.RULES,
    **scalar_calls.RULES,
    **scalar_exact_decimals.RULES,
    **scalar_time_windows.RULES,
}


def compile_scalar(node: exp.Expr, columns: Columns) -> Expression:
    """Compile a scalar expression over `columns`. Raises Refusal."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        name, type_ = columns[node.name]
        return Expression(quoted(name), type_, (name,), show(node), name)
    typed = Compiler(columns, _RULES).value(node)
    read = dict.fromkeys(columns[column.name][0] for column in node.find_all(exp.Column))
    return Expression(typed.sql, typed.type, tuple(read), show(node), functions=tuple(functions_in(node)))


def type_of(node: exp.Expr, columns: Columns) -> Type:
    """Return the type of a scalar expression over `columns`. Raises Refusal."""
    node = node.unnest()
    return columns[node.name][1] if isinstance(node, exp.Column) else Compiler(columns, _RULES).value(node).type


def compile_cast(node: exp.Expr, columns: Columns, to: Type) -> Expression:
    """Compile a scalar expression, and cast its value to a type. The cast must be supported. Raises Refusal."""
    plain = compile_scalar(node, columns)
    if plain.type.required == to.required:
        return plain
    typed = Typed(plain.sql, plain.type)
    return Expression(
        converted(typed, to).sql,
        with_null(to, plain.type.nullable),
        plain.columns,
        f"CAST({plain.text} AS {to.sql})",
        functions=plain.functions,
    )


def compile_condition(conjuncts: Sequence[exp.Expr], columns: Columns) -> Expression | None:
    """Compile all conjuncts as one condition. Return None if there are no conjuncts.

    Raises Refusal if a conjunct is not a condition.
    """
    if not conjuncts:
        return None
    compiler = Compiler(columns, _RULES)
    typed = [compiler.condition(conjunct) for conjunct in conjuncts]
    whole = joined("AND", list(zip(typed, conjuncts, strict=True)))
    read = dict.fromkeys(columns[column.name][0] for each in conjuncts for column in each.find_all(exp.Column))
    return Expression(
        whole.sql,
        whole.type,
        tuple(read),
        " AND ".join(_operand(each) for each in conjuncts),
        functions=tuple(functions_in(*conjuncts)),
    )


def resolved(name: str, like: exp.Expr | None = None) -> exp.Column:
    """Return a node that refers to the plan's column `name`; the node's position in the SQL is that of `like`."""
    identifier = exp.Identifier(this=name, quoted=True)
    if like is not None:
        metas = [each.meta for each in like.walk() if "start" in each.meta]
        if metas:
            identifier.meta.update(metas[0])
            identifier.meta["start"] = min(meta["start"] for meta in metas)
            identifier.meta["end"] = max(meta["end"] for meta in metas)
    return exp.Column(this=identifier)


def show(node: exp.Expr) -> str:
    """Return an expression as Spark SQL for messages, in the form in which a user would write it."""

    def plain(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column):
            return exp.column(*reversed(each.name.split(".")[-3:]))
        return each

    return sql_text(node.transform(plain))


def _operand(node: exp.Expr) -> str:
    return f"({show(node)})" if isinstance(node, exp.Or) else show(node)
