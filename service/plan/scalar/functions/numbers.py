"""Functions on numbers.

The results of the C library's DOUBLE functions may differ from Java's in the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.arithmetic import calculated
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe, widest
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, failure, family

_LAST = "The last digit may differ from Spark's."


def _scaled(arguments: Sequence[Typed]) -> Type:
    """The argument's type; a decimal keeps only the remaining digits after the decimal point."""
    value = arguments[0].type
    if family(value) != "decimal":
        return value.required
    target = int(arguments[1].literal or "0") if len(arguments) > 1 else 0
    whole = value.precision - value.scale + 1
    if target < 0:
        return _decimal(min(max(whole, -target + 1), 38), 0)
    scale = min(value.scale, target)
    return _decimal(min(whole + scale, 38), scale)


def _decimal(precision: int, scale: int) -> Type:
    found = types.decimal(precision, scale)
    assert found is not None, "the precision is within bounds"
    return found


def _rounding(word: str) -> Callable[[Sequence[Typed]], str]:
    """Return a function that writes SQL for ROUND (half away from zero) or BROUND (half to even)."""

    def write(arguments: Sequence[Typed]) -> str:
        value = arguments[0]
        target = int(arguments[1].literal or "0") if len(arguments) > 1 else 0
        name = types.duckdb(_scaled(arguments))
        if family(value.type) == "integer":
            return value.sql if target >= 0 else f"CAST({word}(CAST({value.sql} AS DECIMAL(38,0)), {target}) AS {name})"
        if family(value.type) == "decimal":
            if target < value.type.scale:
                wide = f"CAST({value.sql} AS DECIMAL(38,{value.type.scale}))"
                return f"CAST({word}({wide}, {target}) AS {name})"
            return f"CAST({value.sql} AS {name})"
        suffix = "double" if value.type.sql == "DOUBLE" else "float"
        return f"spark_{word}_{suffix}({value.sql}, {target})"

    return write


def _whole(arguments: Sequence[Typed]) -> Type:
    """BIGINT, or a decimal without digits after the decimal point."""
    value = arguments[0].type
    return _decimal(value.precision - value.scale + 1, 0) if family(value) == "decimal" else BIGINT


def _ceiling(word: str) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        value = arguments[0]
        match family(value.type):
            case "integer":
                return f"CAST({value.sql} AS BIGINT)"
            case "decimal":
                return f"CAST({word}({value.sql}) AS {types.duckdb(_whole(arguments))})"
        return f"CAST({word}(CASE WHEN isnan({value.sql}) THEN 0 ELSE {value.sql} END) AS BIGINT)"

    return write


def _absolute(arguments: Sequence[Typed]) -> str:
    return f"CAST(abs({arguments[0].sql}) AS {types.duckdb(arguments[0].type)})"


def _of_two(sign: str, *, strict: bool) -> Callable[[Sequence[Typed]], Typed]:
    return lambda given: calculated(sign, *given, strict=strict)


def _remainder_type(arguments: Sequence[Typed]) -> Type:
    """The common type, or a decimal with as many digits as the remainder needs."""
    return calculated("%", *arguments).type


def _tried(arguments: Sequence[Typed]) -> Type:
    """The operator's result type, or NULL."""
    return maybe(calculated("+", *arguments).type)


def _positive_remainder(arguments: Sequence[Typed]) -> Typed:
    """Return SQL for the remainder. If the remainder is negative, the divisor is added to it."""
    left, right = arguments
    first = calculated("%", left, right)
    divisor = f"CAST({right.sql} AS {types.duckdb(first.type)})"
    again = f"({first.sql} + {divisor}) % {divisor}"
    return Typed(f"(CASE WHEN {first.sql} < 0 THEN {again} ELSE {first.sql} END)", first.type)


def _of_double(names: str, sql: str, note: str = _LAST, *, null: bool = False, close: bool = True) -> ScalarFunction:
    return ScalarFunction(names, "double", maybe(DOUBLE) if null else DOUBLE, sql, note, close=close)


def _shift(sign: str) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        value, count = arguments
        kernel = "int" if value.type.required == INT else "bigint"
        return f"spark_{sign}_{kernel}({value.sql}, {count.sql})"

    return write


def _bit(arguments: Sequence[Typed]) -> str:
    value, place = arguments
    bits = 32 if value.type.required == INT else 64
    bad = failure(f"'there is no bit ' || {place.sql}", "INTEGER")
    wide = f"spark_shift_right_bigint(CAST({value.sql} AS BIGINT), {place.sql})"
    return f"(CASE WHEN {place.sql} BETWEEN 0 AND {bits - 1} THEN CAST({wide} & 1 AS INTEGER) ELSE {bad} END)"


FUNCTIONS = (
    ScalarFunction("MOD", "number, number", _remainder_type, _of_two("%", strict=True), "Same as %."),
    ScalarFunction(
        "PMOD", "integer, integer", _remainder_type, _positive_remainder, "Never negative if the divisor is positive."
    ),
    ScalarFunction("PMOD", "float, float", _remainder_type, _positive_remainder),
    *(
        ScalarFunction(
            name, "number, number", _tried, _of_two(sign, strict=False), f"Like {sign}, but NULL if that fails."
        )
        for name, sign in (
            ("TRY_ADD", "+"),
            ("TRY_SUBTRACT", "-"),
            ("TRY_MULTIPLY", "*"),
            ("TRY_DIVIDE", "/"),
            ("TRY_MOD", "%"),
        )
    ),
    ScalarFunction("ABS", "number", widest, _absolute),
    ScalarFunction("POSITIVE", "number", widest, "{0}"),
    ScalarFunction("NEGATIVE", "number", widest, "(-{0})"),
    ScalarFunction(
        "SIGN SIGNUM", "double", DOUBLE, "(CASE WHEN isnan({0}) OR {0} = 0 THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END)"
    ),
    ScalarFunction("CEIL CEILING", "number", _whole, _ceiling("ceil"), "One argument. Returns BIGINT or a decimal."),
    ScalarFunction("FLOOR", "number", _whole, _ceiling("floor"), "One argument. Returns BIGINT or a decimal."),
    ScalarFunction(
        "ROUND",
        "number",
        _scaled,
        _rounding("round"),
        "Rounds half away from zero; a DOUBLE is rounded in its decimal form.",
    ),
    ScalarFunction("ROUND", "number, 'int'", _scaled, _rounding("round")),
    ScalarFunction("BROUND", "number", _scaled, _rounding("round_even"), "Rounds half to even."),
    ScalarFunction("BROUND", "number, 'int'", _scaled, _rounding("round_even")),
    ScalarFunction("RINT", "double", DOUBLE, "spark_rint({0})"),
    ScalarFunction("SQRT", "double", DOUBLE, "sqrt({0})"),
    _of_double("CBRT", "spark_cbrt({0})"),
    _of_double("EXP", "spark_exp({0})"),
    _of_double("EXPM1", "spark_expm1({0})"),
    _of_double("LN", "(CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END)", null=True),
    _of_double("LOG", "(CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END)", null=True),
    _of_double("LOG10", "(CASE WHEN {0} <= 0 THEN NULL ELSE log10({0}) END)", null=True),
    _of_double("LOG2", "(CASE WHEN {0} <= 0 THEN NULL ELSE log2({0}) END)", null=True),
    _of_double("LOG1P", "(CASE WHEN {0} <= -1 THEN NULL ELSE spark_log1p({0}) END)", null=True),
    ScalarFunction(
        "LOG",
        "double, double",
        maybe(DOUBLE),
        "(CASE WHEN {0} <= 0 OR {1} <= 0 THEN NULL ELSE ln({1}) / ln({0}) END)",
        f"LOG(base, x). {_LAST}",
        close=True,
    ),
    ScalarFunction("POW POWER", "double, double", DOUBLE, "spark_power({0}, {1})", _LAST, close=True),
    _of_double("SIN", "spark_sin({0})"),
    _of_double("COS", "spark_cos({0})"),
    _of_double("TAN", "spark_tan({0})"),
    _of_double("COT", "(1 / spark_tan({0}))"),
    _of_double("SEC", "(1 / spark_cos({0}))"),
    _of_double("CSC", "(1 / spark_sin({0}))"),
    _of_double("ASIN", "spark_arcsin({0})"),
    _of_double("ACOS", "spark_arccos({0})"),
    _of_double("ATAN", "spark_arctan({0})"),
    ScalarFunction(
        "ATAN2", "double, double", DOUBLE, "spark_arctan2({0} + 0.0::DOUBLE, {1} + 0.0::DOUBLE)", _LAST, close=True
    ),
    _of_double("SINH", "spark_sinh({0})"),
    _of_double("COSH", "spark_cosh({0})"),
    _of_double("TANH", "spark_tanh({0})"),
    _of_double("ASINH", "spark_arcsinh({0})"),
    _of_double("ACOSH", "spark_arccosh({0})"),
    _of_double("ATANH", "spark_arctanh({0})"),
    _of_double("DEGREES", "degrees({0})"),
    _of_double("RADIANS", "radians({0})"),
    ScalarFunction("HYPOT", "double, double", DOUBLE, "spark_hypot({0}, {1})", _LAST, close=True),
    ScalarFunction("PI", "", DOUBLE, "pi()"),
    ScalarFunction("E", "", DOUBLE, "2.718281828459045::DOUBLE"),
    ScalarFunction(
        "FACTORIAL", "int", maybe(BIGINT), "CAST(CASE WHEN {0} BETWEEN 0 AND 20 THEN factorial({0}) END AS BIGINT)"
    ),
    ScalarFunction("ISNAN", "float", BOOLEAN, "COALESCE(isnan({0}), FALSE)", keeps_null=False),
    ScalarFunction("NANVL", "double, double", maybe(DOUBLE), "(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)"),
    ScalarFunction("SHIFTLEFT", "integer, int", widest, _shift("shift_left")),
    ScalarFunction("SHIFTRIGHT", "integer, int", widest, _shift("shift_right")),
    ScalarFunction("SHIFTRIGHTUNSIGNED", "integer, int", widest, _shift("shift_right_unsigned")),
    ScalarFunction("BIT_COUNT", "bigint", INT, "CAST(bit_count({0}) AS INTEGER)"),
    ScalarFunction("BIT_COUNT", "boolean", INT, "CAST({0} AS INTEGER)"),
    ScalarFunction("BIT_GET GETBIT", "integer, int", INT, _bit, "Returns INT, not TINYINT."),
    ScalarFunction(
        "BITMAP_BIT_POSITION", "bigint", BIGINT, "(CASE WHEN {0} > 0 THEN ({0} - 1) % 32768 ELSE -({0} % 32768) END)"
    ),
    ScalarFunction(
        "BITMAP_BUCKET_NUMBER",
        "bigint",
        BIGINT,
        "(CASE WHEN {0} > 0 THEN 1 + ({0} - 1) // 32768 ELSE {0} // 32768 END)",
    ),
    ScalarFunction("BITMAP_COUNT", "binary", BIGINT, "spark_bits({0})"),
    ScalarFunction("BIN", "bigint", STRING, "spark_bin({0})"),
    ScalarFunction(
        "WIDTH_BUCKET", "double, double, double, bigint", maybe(BIGINT), "spark_width_bucket({0}, {1}, {2}, {3})"
    ),
)
