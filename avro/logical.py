"""A value's attributes in addition to its Avro type: a logical type, or a Connect or Debezium name in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowkind.avro.type_tables import CONNECT_LOGICAL, LOGICAL_BASE

_MOST_DIGITS = 76
"""The maximum number of digits of a decimal in Arrow."""


def said_of(kind: str, size: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Type` that a schema's logical type and name imply for the given kind and fixed size."""
    named = str(schema.get("connect.name", ""))
    logical = schema.get("logicalType", CONNECT_LOGICAL.get(named))
    said = {"says": named or ("big-decimal" if logical == "big-decimal" and kind == "bytes" else "")}
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and precision > 0 and 0 <= scale <= precision:
            # Decimals with more digits than Arrow supports are checked one value at a time.
            digits = min(precision, _MOST_DIGITS)
            return said | ({"logical": logical, "precision": digits, "scale": scale} if scale <= digits else {})
    if (
        LOGICAL_BASE.get(str(logical)) == kind
        or (logical == "uuid" and (kind == "string" or size == 16))
        or (logical == "duration" and size == 12)
    ):
        return said | {"logical": logical}
    return said
