"""Compares integers and decimals exactly, even if no decimal type can represent all of their values.

For example, a common type for DECIMAL(38,9) and DECIMAL(38,8) would need 39 digits. To compare numbers, each number is
split at the decimal point into two parts that fit into a type. To use numbers as a join key, each number is converted
to text without trailing zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar import casts, types
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.typed import Typed, converted, unite
from rowkind.service.plan.scalar.types import STRING, as_decimal, family, with_null


class Digits(exp.Expression, exp.Func):
    """An integer or decimal as text; equal numbers have equal texts. Only the planner creates this node."""

    arg_types = {"this": True}  # noqa: RUF012 -- sqlglot's convention


def too_wide(of: Sequence[Type]) -> bool:
    """Return whether the types are all integers or decimals, but have no common type."""
    decimals = [as_decimal(type_) for type_ in of if family(type_) in ("integer", "decimal")]
    if len(decimals) < len(of):
        return False
    whole = max(each.precision - each.scale for each in decimals if each is not None)
    return types.decimal(whole + max(each.scale for each in decimals if each is not None), 0) is None


def compared(values: Sequence[Typed], at: exp.Expr | None = None) -> list[Typed]:
    """Convert values to a form that DuckDB can compare. Raises Refusal if the values cannot be compared."""
    known = [value for value in values if family(value.type) != "null"]
    if not known or not too_wide([value.type for value in known]):
        return unite(values, at)[0]
    scale = max(_decimal(value).scale for value in known)
    return [Typed("NULL", value.type) if value not in known else _apart(value, scale) for value in values]


def _apart(value: Typed, scale: int) -> Typed:
    own = _decimal(value)
    number = converted(value, own).sql
    whole = f"CAST(trunc({number}) AS {own.sql})"
    parts = f"{{'w': CAST({whole} AS DECIMAL(38,0)), 'f': CAST({number} - {whole} AS DECIMAL(38,{scale}))}}"
    return Typed(f"(CASE WHEN {number} IS NOT NULL THEN {parts} END)", value.type)


def _decimal(value: Typed) -> Type:
    found = as_decimal(value.type)
    assert found is not None, "integers and decimals can be converted to a decimal"
    return found


def _digits(compiler: Compiler, node: Digits) -> Typed:
    value = compiler.compile(node.this)
    text = casts.cast(value.sql, value.type, STRING)
    if _decimal(value).scale:
        text = f"rtrim(rtrim({text}, '0'), '.')"
    assert text is not None, "numbers can be converted to text"
    return Typed(text, with_null(STRING, value.type.nullable))


RULES: Mapping[type[exp.Expr], Rule] = {Digits: (_digits, ("this",))}
