"""Compiles scalar values: literals, CASE and similar expressions, and casts."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.arithmetic import number_type
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.exact_decimals import compared
from rowkind.service.plan.scalar.functions.types_as_functions import converted_to
from rowkind.service.plan.scalar.typed import Typed, nullable, text_literal
from rowkind.service.plan.scalar.types import BINARY, BOOLEAN, NULL, STRING, with_null
from rowkind.service.plan.syntax import sql_text

_NARROW = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT"}


class Constants(exp.Expression, exp.Func):
    """A constant array of integers. Only the planner creates this node."""

    arg_types = {"expressions": True}  # noqa: RUF012 -- sqlglot's convention


class OrEmpty(exp.Expression, exp.Func):
    """An array, or an empty array in place of NULL. Only the planner creates this node."""

    arg_types = {"this": True}  # noqa: RUF012 -- sqlglot's convention


def _or_empty(compiler: Compiler, node: OrEmpty) -> Typed:
    array = compiler.whole(node.this)
    return Typed(f"COALESCE({array.sql}, [])", array.type.required)


def _constants(_: Compiler, node: Constants) -> Typed:
    numbers = ", ".join(f"CAST({each.name} AS BIGINT)" for each in node.expressions)
    return Typed(f"[{numbers}]", Type.of("ARRAY<BIGINT NOT NULL> NOT NULL"))


def _literal(_: Compiler, node: exp.Literal) -> Typed:
    text = str(node.this)
    if node.is_string:
        return Typed(text_literal(text), STRING, text)
    try:
        type_ = number_type(text)
    except ValueError:
        raise Refusal(f"the number {text} cannot be parsed", node) from None
    if type_ is None:
        raise Refusal("numbers of more than 38 digits are not supported in expressions", node)
    return Typed(f"CAST({text} AS {types.duckdb(type_)})", type_, text)


def _raw(_: Compiler, node: exp.RawString) -> Typed:
    return Typed(text_literal(str(node.this)), STRING, str(node.this))


def _bytes(_: Compiler, node: exp.HexString) -> Typed:
    digits = str(node.this)
    return Typed(f"unhex('{digits.rjust(len(digits) + len(digits) % 2, '0')}')", BINARY)


def _boolean(_: Compiler, node: exp.Boolean) -> Typed:
    return Typed("TRUE" if node.this else "FALSE", BOOLEAN)


def _null_value(_: Compiler, __: exp.Null) -> Typed:
    return Typed("NULL", NULL)


def _coalesce(compiler: Compiler, node: exp.Coalesce) -> Typed:
    values, type_ = compiler.united(node, [node.this, *node.expressions])
    nullable = all(value.type.nullable for value in values)
    return Typed(f"COALESCE({', '.join(value.sql for value in values)})", with_null(type_, nullable))


def _nullif(compiler: Compiler, node: exp.Nullif) -> Typed:
    left, right = compared([compiler.compile(each) for each in (node.this, node.expression)], node)
    kept = compiler.compile(node.this)
    return Typed(f"(CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {kept.sql} END)", kept.type.as_nullable())


def _if(compiler: Compiler, node: exp.If) -> Typed:
    return _branches(compiler, node, [(node.this, node.args["true"])], node.args.get("false"))


def _case(compiler: Compiler, node: exp.Case) -> Typed:
    ifs: list[tuple[exp.Expr, exp.Expr]] = []
    for branch in node.args["ifs"]:
        test = branch.this
        if node.this is not None:
            test = exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        ifs.append((test, branch.args["true"]))
    return _branches(compiler, node, ifs, node.args.get("default"))


def _branches(
    compiler: Compiler, node: exp.Expr, ifs: list[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None
) -> Typed:
    results = [result for _, result in ifs] + [default or exp.Null()]
    values, type_ = compiler.united(node, results)
    whens = " ".join(
        f"WHEN {compiler.condition(test).sql} THEN {value.sql}" for (test, _), value in zip(ifs, values, strict=False)
    )
    return Typed(f"(CASE {whens} ELSE {values[-1].sql} END)", nullable(type_, *values))


_TYPES = (
    "the target must be BOOLEAN, a number, DECIMAL(p,s) of up to 38 digits, STRING, BINARY, DATE, TIMESTAMP, or "
    "an ARRAY, MAP or STRUCT of these"
)


def _cast(compiler: Compiler, node: exp.Cast) -> Typed:
    value = compiler.whole(node.this)
    spelled = sql_text(node.to)
    strict = not isinstance(node, exp.TryCast)
    if node.to.is_type(exp.DType.TIME):
        # sqlglot would read TIME as a TIMESTAMP.
        raise Refusal("CAST to TIME is not supported: write CAST(… AS STRING), and compare the text", node)
    try:
        to = Type.of(f"{spelled} NOT NULL")
    except SchemaError:
        raise Refusal(f"CAST to {spelled} is not supported: {_TYPES}", node) from None
    if types.is_nested(to) and any(narrow in spelled for narrow in _NARROW):
        raise Refusal(
            f"CAST to {spelled} is not supported: TINYINT and SMALLINT cannot be nested in another type; use INT", node
        )
    if not types.computable(to):
        raise Refusal(f"CAST to {to.sql} is not supported: {_TYPES}", node)
    to = types.canonical(to) if types.is_nested(to) else to
    try:
        found = converted_to(value, to, strict=strict)
    except Refusal as refusal:
        raise Refusal(refusal.text, node.this) from None
    if spelled in _NARROW:
        # Expressions have no integer type narrower than INT, but a value that does not fit the target type must fail.
        word = "CAST" if strict else "TRY_CAST"
        return Typed(f"CAST({word}({found.sql} AS {spelled}) AS INTEGER)", found.type)
    return found


RULES: Mapping[type[exp.Expr], Rule] = {
    Constants: (_constants, ("expressions",)),
    OrEmpty: (_or_empty, ("this",)),
    exp.Literal: (_literal, ("this",)),
    exp.RawString: (_raw, ("this",)),
    exp.HexString: (_bytes, ("this",)),
    exp.Boolean: (_boolean, ("this",)),
    exp.Null: (_null_value, ()),
    exp.Coalesce: (_coalesce, ("this", "expressions")),
    exp.Nullif: (_nullif, ("this", "expression")),
    exp.If: (_if, ("this", "true", "false")),
    exp.Case: (_case, ("this", "ifs", "default")),
    exp.Cast: (_cast, ("this", "to")),
    exp.TryCast: (_cast, ("this", "to")),
}
