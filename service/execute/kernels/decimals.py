"""Decimal kernels whose intermediate results need more than 128 bits although the final result fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = ()
_WIDE = Context(prec=200)
_QUOTIENT_SCALE = Decimal(1).scaleb(-39)


def _of(compute: Callable[[Decimal, Decimal], Decimal]) -> Kernel:
    def computed(left: str, right: str, scale: int) -> str:
        found = compute(Decimal(left), Decimal(right))
        return format(found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE), "f")

    return each(computed, "VARCHAR", "VARCHAR", "INTEGER", "VARCHAR")


def _divide(left: Decimal, right: Decimal) -> Decimal:
    """Divide like Spark, which first rounds the quotient to 39 digits after the decimal point."""
    if not right:
        raise ZeroDivisionError("division by zero: TRY_DIVIDE returns NULL instead")
    return _WIDE.divide(left, right).quantize(_QUOTIENT_SCALE, ROUND_HALF_UP, _WIDE)


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise ZeroDivisionError("division by zero: a DIV NULLIF(b, 0) returns NULL instead")
    return _WIDE.divide(left, right).quantize(Decimal(1), ROUND_DOWN, _WIDE)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise ZeroDivisionError("division by zero: TRY_MOD returns NULL instead")
    return _WIDE.remainder(left, right)


KERNELS: Mapping[str, Kernel] = {
    "spark_decimal_add": _of(_WIDE.add),
    "spark_decimal_subtract": _of(_WIDE.subtract),
    "spark_decimal_multiply": _of(_WIDE.multiply),
    "spark_decimal_divide": _of(_divide),
    "spark_decimal_remainder": _of(_remainder),
    "spark_decimal_quotient": _of(_quotient),
}
