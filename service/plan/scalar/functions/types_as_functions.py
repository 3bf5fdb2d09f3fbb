"""Type names that are called as functions: INT(x) means CAST(x AS INT)."""

from __future__ import annotations

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts import cast, constant, may_lose
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import (  # fmt: skip
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LOCAL,
    STRING,
    TIMESTAMP,
    decimal,
    family,
    with_null,
)


def converted_to(value: Typed, to: Type, *, strict: bool = True) -> Typed:
    """Compile a CAST or, if `strict` is False, a TRY_CAST. Raises Refusal."""
    if value.literal is not None and family(value.type) == "string":
        if (known := constant(value.literal, to)) is not None:
            return Typed(known, to)
        if strict and family(to) != "float":
            raise Refusal(f"{value.literal!r} is not a value of type {to.sql}")
    sql = cast(value.sql, value.type, to, strict=strict)
    if sql is None:
        raise Refusal(f"CAST from {value.type.sql} to {to.sql} is not supported, as in Spark")
    lossy = value.type.nullable or may_lose(value.type, to) or (not strict and value.type.required != to.required)
    return Typed(sql, with_null(to, lossy))


def _to(names: str, to: Type, *, strict: bool = True) -> ScalarFunction:
    return ScalarFunction(
        names, "any", to if strict else maybe(to), lambda given: converted_to(given[0], to, strict=strict)
    )


_TEN_DIGITS = decimal(10, 0)
assert _TEN_DIGITS is not None, "the precision is at most 38"

FUNCTIONS = (
    _to("INT", INT),
    _to("BIGINT", BIGINT),
    _to("FLOAT", FLOAT),
    _to("DOUBLE", DOUBLE),
    _to("DECIMAL", _TEN_DIGITS),
    _to("STRING", STRING),
    _to("BINARY", BINARY),
    _to("BOOLEAN", BOOLEAN),
    _to("DATE TO_DATE", DATE),
    _to("TIMESTAMP TO_TIMESTAMP TO_TIMESTAMP_LTZ", TIMESTAMP),
    _to("TO_TIMESTAMP_NTZ", LOCAL),
    _to("TRY_TO_DATE", DATE, strict=False),
    _to("TRY_TO_TIMESTAMP", TIMESTAMP, strict=False),
)
