"""What a schema says of a value besides its Avro type: a logical type, or a name of Connect's or Debezium's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowkind.avro.type_tables import CONNECT_LOGICAL, LOGICAL_BASE

if TYPE_CHECKING:
    from rowkind.avro.type import Type

_MOST_DIGITS = 76
"""Of a decimal in Arrow."""


def with_logical(base: Type, schema: Mapping[str, Any]) -> Type:
    """The type with the logical type of its schema, where that fits, and with what the writer says of it."""
    named = str(schema.get("connect.name", ""))
    logical = schema.get("logicalType", CONNECT_LOGICAL.get(named))
    base = replace(base, says=named or ("big-decimal" if logical == "big-decimal" and base.kind == "bytes" else ""))
    if logical == "decimal" and base.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and precision > 0 and 0 <= scale <= precision:
            # More digits than Arrow has are checked value by value.
            digits = min(precision, _MOST_DIGITS)
            return replace(base, logical=logical, precision=digits, scale=scale) if scale <= digits else base
    if (
        LOGICAL_BASE.get(str(logical)) == base.kind
        or (logical == "uuid" and (base.kind == "string" or base.size == 16))
        or (logical == "duration" and base.size == 12)
    ):
        return replace(base, logical=logical)
    return base
