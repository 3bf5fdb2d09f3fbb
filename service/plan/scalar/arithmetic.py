"""Compiles arithmetic and bitwise operators on integers, decimals and doubles, with Spark's result types.

As in Spark, a decimal result that could have more than 38 digits loses digits after the decimal point, but at least six
of them remain. If an intermediate result does not fit into DuckDB's 128 bits, `service.execute.kernels.decimals`
computes the result digit by digit.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.intervals import moved
from rowkind.service.plan.scalar.typed import Typed, converted, nullable
from rowkind.service.plan.scalar.types import BIGINT, DOUBLE, INT, common, family

_SIGNS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_BITS: Mapping[type[exp.Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
_SHIFTS: Mapping[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "spark_shift_left",
    exp.BitwiseRightShift: "spark_shift_right",
}
_ADVICE: Mapping[str, str] = {"/": "TRY_DIVIDE", "%": "TRY_MOD", "DIV": "a DIV NULLIF(b, 0)"}
_BOTH = ("this", "expression")
_MOST = 38
_LEAST_SCALE = 6


def number_type(text: str) -> Type | None:
    """Return the type of a number literal, or None for a decimal with too many digits.

    Raises ValueError if the text is not a number.
    """
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


def calculated(sign: str, left: Typed, right: Typed, *, strict: bool = True) -> Typed:
    """Compile an arithmetic operation on two numbers. If `strict` is False, an error becomes NULL, as in TRY_ADD."""
    families = {family(left.type), family(right.type)}
    if "decimal" in families and "float" not in families:
        return _of_decimals(sign, left, right, strict=strict)
    type_ = DOUBLE if sign == "/" else common(left.type, right.type)
    assert type_ is not None, "two numbers have a common type"
    a, b = converted(left, type_).sql, converted(right, type_).sql
    result = nullable(type_, left, right)
    if sign in ("/", "%"):
        zero = _by_zero(a, sign, type_) if strict else "NULL"
        # The smallest integer has no positive counterpart, so DuckDB refuses to divide it by -1.
        opposite = f"WHEN {b} = -1 THEN 0 * {a} " if family(type_) == "integer" else ""
        return Typed(
            f"(CASE WHEN {b} = 0 THEN {zero} {opposite}ELSE {a} {sign} {b} END)", _lossy(result, strict=strict)
        )
    if not strict and family(type_) == "integer":
        wide = f"CAST({a} AS HUGEINT) {sign} {b}"
        return Typed(f"TRY_CAST({wide} AS {types.duckdb(type_)})", result.as_nullable())
    return Typed(f"({a} {sign} {b})", result)


def _lossy(type_: Type, *, strict: bool) -> Type:
    return type_ if strict else type_.as_nullable()


def _by_zero(left: str, sign: str, type_: Type) -> str:
    """Return SQL for a division by zero: it fails, or returns NULL if the left operand is NULL."""
    failed = types.failure(f"'division by zero: {_ADVICE[sign]} returns NULL instead'", types.duckdb(type_))
    return f"CASE WHEN {left} IS NOT NULL THEN {failed} END"


def _of_decimals(sign: str, left: Typed, right: Typed, *, strict: bool) -> Typed:
    a, b = _exactly(left), _exactly(right)
    precision, scale = _digits(sign, a, b)
    type_ = _bounded(precision, scale)
    result = _lossy(nullable(type_, left, right), strict=strict)
    x, y = converted(left, a).sql, converted(right, b).sql
    if not strict and sign in ("/", "%"):
        y = f"CAST(nullif({y}, 0) AS {b.sql})"
    word = "CAST" if strict else "TRY_CAST"
    if type_.scale < scale:
        inner = f"spark_decimal_{_NAMES[sign]}(CAST({x} AS VARCHAR), CAST({y} AS VARCHAR), {type_.scale})"
    elif sign == "/":
        shifted = f"({_unscaled(x, a)} * {10 ** (scale + b.scale - a.scale)}::HUGEINT)"
        quotient = f"spark_half_up({shifted}, {_unscaled(y, b)})"
        inner = f"CAST({quotient} AS DECIMAL(38,0)) * CAST('0.{'1'.rjust(scale, '0')}' AS DECIMAL({scale},{scale}))"
    elif sign == "*":
        inner = f"{x} * {y}"
    else:
        same = _bounded(max(a.precision - a.scale, b.precision - b.scale) + max(a.scale, b.scale), scale)
        inner = f"CAST({x} AS {same.sql}) {sign} CAST({y} AS {same.sql})"
    whole = f"{word}({inner} AS {type_.sql})"
    if strict and sign in ("/", "%"):
        whole = f"(CASE WHEN {y} = 0 THEN {_by_zero(x, sign, type_)} ELSE {whole} END)"
    return Typed(whole, result)


_NAMES = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder"}


def _digits(sign: str, a: Type, b: Type) -> tuple[int, int]:
    """Return the maximum number of digits of a result, and how many of these digits follow the decimal point."""
    match sign:
        case "*":
            return a.precision + b.precision + 1, a.scale + b.scale
        case "/":
            scale = max(_LEAST_SCALE, a.scale + b.precision + 1)
            return a.precision - a.scale + b.scale + scale, scale
        case "%":
            scale = max(a.scale, b.scale)
            return min(a.precision - a.scale, b.precision - b.scale) + scale, scale
    scale = max(a.scale, b.scale)
    return max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale


def _bounded(precision: int, scale: int) -> Type:
    """Return Spark's decimal type for a result with this precision and scale.

    If the precision exceeds 38, digits after the decimal point are dropped, but at least six of them remain.
    """
    if precision > _MOST:
        scale = max(_MOST - (precision - scale), min(scale, _LEAST_SCALE))
    found = types.decimal(min(precision, _MOST), scale)
    assert found is not None, "the precision is at most 38"
    return found


def _unscaled(sql: str, type_: Type) -> str:
    """Return SQL for a decimal without its decimal point, as a HUGEINT."""
    if type_.precision + type_.scale < _MOST:
        return f"CAST({sql} * {10**type_.scale} AS HUGEINT)"
    return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"


def _exactly(value: Typed) -> Type:
    """Return the decimal type of an integer or decimal.

    As in Spark, an integer literal gets the smallest type that can hold it.
    """
    if value.literal is not None and family(value.type) == "integer":
        found = types.decimal(len(value.literal.lstrip("+-")), 0)
    else:
        found = types.as_decimal(value.type)
    assert found is not None, "integers and decimals can be converted to a decimal"
    return found


def _arithmetic(compiler: Compiler, node: exp.Binary) -> Typed:
    if isinstance(node, exp.Add | exp.Sub) and (found := moved(compiler, node)) is not None:
        return found
    left, right = compiler.numbers(node.left, node.right)
    return calculated(_SIGNS[type(node)], left, right)


def _whole_quotient(compiler: Compiler, node: exp.IntDiv) -> Typed:
    left, right = compiler.numbers(node.left, node.right)
    if "float" in (family(left.type), family(right.type)):
        raise Refusal("DIV takes integers and decimals: write CAST(a / b AS BIGINT)", node)
    if family(left.type) == family(right.type) == "integer":
        a, b = converted(left, BIGINT).sql, converted(right, BIGINT).sql
        zero = _by_zero(a, "DIV", BIGINT)
        return Typed(f"(CASE WHEN {b} = 0 THEN {zero} ELSE {a} // {b} END)", nullable(BIGINT, left, right))
    texts = ", ".join(f"CAST({converted(value, _exactly(value)).sql} AS VARCHAR)" for value in (left, right))
    return Typed(f"CAST(spark_decimal_quotient({texts}, 0) AS BIGINT)", nullable(BIGINT, left, right))


def _minus(compiler: Compiler, node: exp.Neg) -> Typed:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return compiler.compile(exp.Literal(this=f"-{node.this.this}", is_string=False))
    (value,) = compiler.numbers(node.this)
    return Typed(f"(-{value.sql})", value.type)


def _integers(compiler: Compiler, node: exp.Expr, *parts: exp.Expr) -> list[Typed]:
    values = compiler.numbers(*parts)
    if any(family(value.type) != "integer" for value in values):
        raise Refusal("bitwise operators take only integers: write CAST(… AS BIGINT)", node)
    return values


def _bits(compiler: Compiler, node: exp.Binary) -> Typed:
    left, right = _integers(compiler, node, node.left, node.right)
    type_ = common(left.type, right.type)
    assert type_ is not None, "integers have a common type"
    a, b = converted(left, type_).sql, converted(right, type_).sql
    sql = f"xor({a}, {b})" if isinstance(node, exp.BitwiseXor) else f"({a} {_BITS[type(node)]} {b})"
    return Typed(sql, nullable(type_, left, right))


def _not_bits(compiler: Compiler, node: exp.BitwiseNot) -> Typed:
    (value,) = _integers(compiler, node, node.this)
    return Typed(f"(~{value.sql})", value.type)


def _shift(compiler: Compiler, node: exp.Binary) -> Typed:
    value, count = _integers(compiler, node, node.left, node.right)
    if count.type.required != INT:
        raise Refusal("the number of bits to shift by must be an INT", node)
    kernel = f"{_SHIFTS[type(node)]}_{'int' if value.type.required == INT else 'bigint'}"
    return Typed(f"{kernel}({value.sql}, {count.sql})", nullable(value.type.required, value, count))


RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Neg: (_minus, ("this",)),
    **dict.fromkeys(_SIGNS, (_arithmetic, _BOTH)),
    exp.IntDiv: (_whole_quotient, _BOTH),
    **dict.fromkeys(_BITS, (_bits, _BOTH)),
    exp.BitwiseNot: (_not_bits, ("this",)),
    **dict.fromkeys(_SHIFTS, (_shift, _BOTH)),
}
