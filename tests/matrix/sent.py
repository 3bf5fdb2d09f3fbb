"""The values that a writer may send, in Avro, JSON with Connect's schema and plain JSON, and the right results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DECLARED = (
    "BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,9)", "STRING", "UUID", "BINARY", "DATE",
    "TIME(3)", "TIME", "TIMESTAMP(3)", "TIMESTAMP", "TIMESTAMP(9)", "TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ",
    "TIMESTAMP_NTZ(9)", "ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<a: INT>", "STRUCT<scale: INT, value: BINARY>",
    "STRUCT<wkb: BINARY, srid: INT>", "STRUCT<x: DOUBLE, y: DOUBLE>",
)  # fmt: skip
"""The declared types of the column."""

NO_SCHEMA: Any = object()
"""Stands for a schema if the writer has no such type in this format."""

Right = Mapping[str, Any]
"""The value as `rowkind` prints it, by declared type. Any other type is refused, or the record is a dead letter."""


@dataclass(frozen=True)
class Sent:
    """A type of a writer, with one value.

    - `avro`: its Avro schema; `value` in fastavro's form, without the logical types of `avro`.
    - `connect`: its Connect schema as JSON; `json` is the value as the JsonConverter writes it.
    - `right`: the right results if the schema is known; `plain`: those in JSON without a schema.
    - `note`: a remark.
    """

    name: str
    avro: Any = NO_SCHEMA
    value: Any = None
    connect: Any = NO_SCHEMA
    json: Any = None
    right: Right = field(default_factory=dict)
    plain: Right | None = None
    note: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the writer's type, one of which must be in a refusal."""
        logical = self.avro.get("logicalType", "") if isinstance(self.avro, dict) else str(self.avro)
        return tuple(word for word in (self.name.partition(" (")[0], logical) if word)


def text(value: Any) -> str:
    """Return bytes in the form of Connect's JSON."""
    return base64.b64encode(value).decode()


def named(type_: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a named schema of Connect."""
    return {"type": type_, "optional": True, "name": name, "version": 1, **more}


def numbers(value: int, *, kind: str = "long", unit: bool = False) -> Right:
    """Return the results for a whole number by numeric type; a number with a `unit` is only read as an integer."""
    found: dict[str, Any] = {"BIGINT": value} | ({"INT": value} if kind == "int" else {})
    if not unit:
        found |= {"FLOAT": float(np.float32(value)), "DOUBLE": float(value), "DECIMAL(38,9)": f"{value}.000000000"}
        found |= {"DECIMAL(10,2)": f"{value}.00"} if abs(value) < 10**8 else {}
    return found


def moments(until: str, digits: int) -> Right:
    """Return the results for a timestamp with this number of fractional digits, by the types that can read it."""
    found: dict[str, Any] = {}
    for declared, most in (("TIMESTAMP(3)", 3), ("TIMESTAMP", 6), ("TIMESTAMP(9)", 9)):
        if digits <= most or most == 6:
            seconds, _, fraction = until.partition(".")
            shown = f"{seconds}.{fraction[:most]}" if fraction else seconds
            found |= {declared: f"{shown}Z", declared.replace("TIMESTAMP", "TIMESTAMP_NTZ"): shown}
    return found


def spelled(until: str) -> Right:
    """Return the results for a timestamp as text, of which digits beyond the type's precision are cut off."""
    return {**moments(f"{until[:23]}", 3), **moments(until, 6)}


def times(text_: str, digits: int) -> Right:
    """Return the results for a time of day with this number of fractional digits."""
    return ({"TIME(3)": text_} if digits <= 3 else {}) | {"TIME": text_}
