"""Number kernels: Java's rounding of doubles, Java's bit shifts, and functions that DuckDB refuses for some values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from rowkind.service.execute.kernels.kernel import Kernel, each, whole

MACROS = (
    # Values too large for 32 bits become infinite.
    (
        "spark_float(x) AS CASE WHEN isfinite(x) AND abs(x) >= 3.4028235677973366e38 "
        "THEN CAST(sign(x) * CAST('inf' AS DOUBLE) AS REAL) ELSE CAST(x AS REAL) END"
    ),
    "spark_floor_div(n, d) AS (n - ((n % d) + d) % d) // d",
    # The quotient |n| / |d| is rounded half up and then gets its sign. A zero divisor is an error.
    (
        "spark_half_up(n, d) AS CASE WHEN (n < 0) = (d < 0) THEN (abs(n) + abs(d) // 2) // abs(d) "
        "ELSE -((abs(n) + abs(d) // 2) // abs(d)) END"
    ),
)
_WIDE = Context(prec=800)


def _round(mode: str) -> Any:
    def rounded(value: float, digits: int) -> float:
        if not math.isfinite(value):
            return value
        found = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), rounding=mode, context=_WIDE)
        return float(found) if found else math.copysign(0.0, 1.0)

    return rounded


def _rint(value: float) -> float:
    return value if not math.isfinite(value) else math.copysign(float(round(value)), value)


def _power(base: Any, exponent: Any) -> Any:
    """Raise to a power like Java: 1 to the power NaN, and ±1 to an infinite power, are NaN (1 in C)."""
    unknown = (np.isnan(exponent) | ((np.abs(base) == 1) & np.isinf(exponent))) & (exponent != 0)
    return np.where(unknown, np.nan, np.power(base, exponent))


def _shift_right_unsigned(value: Any, count: Any) -> Any:
    unsigned = value.astype(f"u{value.dtype}")
    return (unsigned >> _within(value, count).astype(unsigned.dtype)).astype(value.dtype)


def _within(value: Any, count: Any) -> Any:
    """Return, like Java, the shift count modulo the number of bits in the value."""
    return (count & (8 * value.dtype.itemsize - 1)).astype(value.dtype)


def _bucket(value: float, low: float, high: float, count: int) -> int | None:
    if count <= 0 or count == 2**63 - 1 or math.isnan(value) or low == high:
        return None
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    lower, upper = min(low, high), max(low, high)
    if low < high:
        if value < lower:
            return 0
        return count + 1 if value >= upper else int(count * (value - lower) / (upper - lower)) + 1
    if value > upper:
        return 0
    return count + 1 if value <= lower else int(count * (upper - value) / (upper - lower)) + 1


def _formatted(text: str, form: str) -> str:
    """Format a number without its sign, as Spark does if the format contains no sign.

    If the number does not fit into the format, the result contains # in place of each digit.
    """
    whole, _, fraction = text.lstrip("-").partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    before, point, behind = form.partition(".")
    room = len(before.replace(",", ""))
    if len(whole) > room or len(fraction) > len(behind):
        return before.replace(",", " ").replace("9", "#").replace("0", "#") + point + "#" * len(behind)
    if before[0] == "0":
        whole = whole.rjust(room, "0")
    elif point:
        whole = whole or "0"
    found, left = "", list(whole)
    for letter in reversed(before):
        found = (" " if not left else "," if letter == "," else left.pop()) + found
    return found + point + fraction.ljust(len(behind), "0")


_NO_BREAK = "\x85\xa0\u2007\u202f"
"""Characters that are spaces in Python but not in Java."""


def _number(text: str, form: str, strict: bool) -> str | None:
    """Parse a number according to a format. Spaces are allowed anywhere except before a sign.

    A format that begins with 0 requires all digits before the decimal point. Digits and spaces are accepted only if
    Java accepts them as 16-bit characters. A decimal point is allowed only if the format contains one.
    """
    before, _, behind = form.removeprefix("S").partition(".")
    sign = text[:1] if form[0] == "S" and text[:1] in ("+", "-") else ""
    digits = "".join(letter for letter in text[len(sign) :] if letter in _NO_BREAK or not letter.isspace())
    whole, point, fraction = digits.partition(".")
    fits = len(whole) == len(before) if before[:1] == "0" else len(whole) <= len(before)
    fits = fits and len(fraction) <= len(behind) and bool(behind or not point)
    if not fits or not (whole + fraction).isdecimal() or max(digits) > "\uffff":
        if strict:
            raise ValueError(f"{text!r} does not match the format: TRY_TO_NUMBER returns NULL instead")
        return None
    return f"{sign}{int(whole or '0')}.{''.join(str(int(digit)) for digit in fraction) or '0'}"


_DOUBLES = ("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "exp", "expm1", "log1p", "cbrt",
            "arcsinh", "arccosh", "arctanh")  # fmt: skip
_SHIFTS = {
    "spark_shift_left": lambda value, count: value << _within(value, count),
    "spark_shift_right": lambda value, count: value >> _within(value, count),
    "spark_shift_right_unsigned": _shift_right_unsigned,
}
KERNELS: Mapping[str, Kernel] = {
    "spark_round_double": each(_round(ROUND_HALF_UP), "DOUBLE", "INTEGER", "DOUBLE"),
    "spark_round_float": each(_round(ROUND_HALF_UP), "REAL", "INTEGER", "REAL"),
    "spark_round_even_double": each(_round(ROUND_HALF_EVEN), "DOUBLE", "INTEGER", "DOUBLE"),
    "spark_round_even_float": each(_round(ROUND_HALF_EVEN), "REAL", "INTEGER", "REAL"),
    "spark_rint": each(_rint, "DOUBLE", "DOUBLE"),
    "spark_power": whole(_power, "DOUBLE", "DOUBLE", "DOUBLE"),
    "spark_hypot": whole(np.hypot, "DOUBLE", "DOUBLE", "DOUBLE"),
    "spark_arctan2": whole(np.arctan2, "DOUBLE", "DOUBLE", "DOUBLE"),
    "spark_bin": each(lambda value: format(value & (2**64 - 1), "b"), "BIGINT", "VARCHAR"),
    "spark_formatted": each(_formatted, "VARCHAR", "VARCHAR", "VARCHAR"),
    "spark_number": each(_number, "VARCHAR", "VARCHAR", "BOOLEAN", "VARCHAR"),
    "spark_width_bucket": each(_bucket, "DOUBLE", "DOUBLE", "DOUBLE", "BIGINT", "BIGINT"),
    **{f"spark_{name}": whole(getattr(np, name), "DOUBLE", "DOUBLE") for name in _DOUBLES},
    **{f"{name}_int": whole(shift, "INTEGER", "INTEGER", "INTEGER") for name, shift in _SHIFTS.items()},
    **{f"{name}_bigint": whole(shift, "BIGINT", "INTEGER", "BIGINT") for name, shift in _SHIFTS.items()},
}
