"""Scalar values: literals, arithmetic, CASE and its kin, casts, and functions of text."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from avro.errors import SchemaError
from avro.schema import Type
from service.plan import types
from service.plan.casts import cast
from service.plan.errors import Refusal
from service.plan.scalar_compiler import Compiler, Rule
from service.plan.typed import Typed, constant, converted, nullable, text_literal
from service.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, common, family, with_null

_SIGNS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TEXT_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.Upper: "upper({})",
    exp.Lower: "lower({})",
    exp.Trim: "trim({}, ' ')",
}


def _literal(_: Compiler, node: exp.Literal) -> Typed:
    text = str(node.this)
    if node.is_string:
        return Typed(text_literal(text), STRING, text)
    try:
        type_ = _number_type(text)
    except ValueError:
        raise Refusal(f"the number {text} is not understood", node) from None
    if type_ is None:
        raise Refusal("a number of more than 38 digits cannot be computed with", node)
    return Typed(f"CAST({text} AS {types.duckdb(type_)})", type_)


def _boolean(_: Compiler, node: exp.Boolean) -> Typed:
    return Typed("TRUE" if node.this else "FALSE", BOOLEAN)


def _null_value(_: Compiler, __: exp.Null) -> Typed:
    return Typed("NULL", NULL)


def _minus(compiler: Compiler, node: exp.Neg) -> Typed:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _literal(compiler, exp.Literal(this=f"-{node.this.this}", is_string=False))
    (value,) = compiler.numbers(node.this)
    return Typed(f"(-{value.sql})", value.type)


def _arithmetic(compiler: Compiler, node: exp.Binary) -> Typed:
    left, right = compiler.numbers(node.left, node.right)
    sign = _SIGNS[type(node)]
    if "decimal" in (family(left.type), family(right.type)) and "float" not in (
        family(left.type),
        family(right.type),
    ):
        return _decimal_arithmetic(node, sign, left, right)
    type_ = common(left.type, right.type)
    assert type_ is not None, "numbers have a common type"
    a, b = converted(left, type_), converted(right, type_)
    return Typed(f"({a.sql} {sign} {b.sql})", nullable(type_, left, right))


def _coalesce(compiler: Compiler, node: exp.Coalesce) -> Typed:
    values, type_ = compiler.united(node, [node.this, *node.expressions])
    nullable = all(value.type.nullable for value in values)
    return Typed(f"COALESCE({', '.join(value.sql for value in values)})", with_null(type_, nullable))


def _nullif(compiler: Compiler, node: exp.Nullif) -> Typed:
    (left, right), _ = compiler.united(node, [node.this, node.expression])
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


def _cast(compiler: Compiler, node: exp.Cast) -> Typed:
    value = compiler.compile(node.this)
    try:
        to = Type.of(node.to.sql("spark") + " NOT NULL")
    except SchemaError:
        raise Refusal(f"CAST to {node.to.sql('spark')} is not supported yet", node) from None
    if family(to) is None:
        raise Refusal(f"CAST to {to.sql} is not supported yet", node)
    if value.literal is not None:
        return Typed(constant(node, value.literal, to), to)
    sql = cast(value.sql, value.type, to)
    if sql is None:
        raise Refusal(f"CAST from {value.type.sql} to {to.sql} is not supported yet", node)
    return Typed(sql, with_null(types.canonical(to), value.type.nullable))


def _text_function(compiler: Compiler, node: exp.Func) -> Typed:
    value = compiler.string(node.this)
    return Typed(_TEXT_FUNCTIONS[type(node)].format(value.sql), value.type)


def _length(compiler: Compiler, node: exp.Length) -> Typed:
    value = compiler.string(node.this)
    return Typed(f"CAST(length({value.sql}) AS INTEGER)", with_null(INT, value.type.nullable))


def _substring(compiler: Compiler, node: exp.Substring) -> Typed:
    value = compiler.string(node.this)
    bounds = [node.args.get("start"), node.args.get("length")]
    numbers = []
    for bound in bounds:
        if bound is not None and not (isinstance(bound, exp.Literal) and str(bound.this).isdigit()):
            raise Refusal("SUBSTRING takes a start and a length that are written out and not negative", node)
        numbers.append(None if bound is None else int(str(bound.this)))
    start, length = numbers
    # Spark takes 0 for the first character too.
    arguments = [value.sql, str(max(start or 1, 1)), *([] if length is None else [str(length)])]
    return Typed(f"substring({', '.join(arguments)})", value.type)


def _concat(compiler: Compiler, node: exp.Expr) -> Typed:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    values = []
    for part in parts:
        value = compiler.compile(part)
        sql = cast(value.sql, value.type, STRING)
        if sql is None:
            raise Refusal(f"a {value.type.sql} cannot be turned into text yet", part)
        values.append(Typed(sql, value.type))
    return Typed(f"({' || '.join(value.sql for value in values)})", nullable(STRING, *values))


def _decimal_arithmetic(node: exp.Expr, sign: str, left: Typed, right: Typed) -> Typed:
    a, b = (
        _literal_decimal(each, value) or types.as_decimal(value.type)
        for each, value in ((node.this, left), (node.expression, right))
    )
    assert a is not None and b is not None, "integers and decimals have a decimal"  # noqa: PT018 -- one fact
    if sign == "*":
        type_ = types.decimal(a.precision + b.precision + 1, a.scale + b.scale)
    else:
        scale = max(a.scale, b.scale)
        type_ = types.decimal(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if type_ is None:
        raise Refusal(
            f"{left.type.sql} {sign} {right.type.sql} can have more than 38 digits: CAST to smaller decimals first",
            node,
        )
    inner = f"{converted(left, a).sql} {sign} {converted(right, b).sql}"
    return Typed(f"CAST({inner} AS {type_.sql})", nullable(type_, left, right))


def _literal_decimal(node: exp.Expr, value: Typed) -> Type | None:
    """Spark takes a whole number written out for the smallest decimal that holds it."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        node = node.this
    if isinstance(node, exp.Literal) and family(value.type) == "integer":
        return types.decimal(len(str(node.this)), 0)
    return None


def _number_type(text: str) -> Type | None:
    digits = text.removeprefix("-")
    if "e" in digits.lower():
        float(digits)
        return DOUBLE
    if "." in digits:
        whole, _, fraction = digits.partition(".")
        whole = whole.lstrip("0")
        int(whole + fraction or "0")
        return types.decimal(max(len(whole) + len(fraction), 1), len(fraction))
    number = int(text)
    if -(2**31) <= number < 2**31:
        return INT
    return BIGINT if -(2**63) <= number < 2**63 else types.decimal(len(digits), 0)


RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Literal: (_literal, ("this",)),
    exp.Boolean: (_boolean, ("this",)),
    exp.Null: (_null_value, ()),
    exp.Neg: (_minus, ("this",)),
    **dict.fromkeys(_SIGNS, (_arithmetic, ("this", "expression"))),
    exp.Coalesce: (_coalesce, ("this", "expressions")),
    exp.Nullif: (_nullif, ("this", "expression")),
    exp.If: (_if, ("this", "true", "false")),
    exp.Case: (_case, ("this", "ifs", "default")),
    exp.Cast: (_cast, ("this", "to")),
    exp.TryCast: (_cast, ("this", "to")),
    **dict.fromkeys(_TEXT_FUNCTIONS, (_text_function, ("this",))),
    exp.Length: (_length, ("this",)),
    exp.Substring: (_substring, ("this", "start", "length")),
    exp.Concat: (_concat, ("expressions",)),
    exp.DPipe: (_concat, ("this", "expression")),
}
