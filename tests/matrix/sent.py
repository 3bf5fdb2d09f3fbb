"""What a writer may send, as Avro, as JSON with Connect's schema and as JSON without, and what is right of it."""

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
"""The types that a column is declared with."""

NO_SCHEMA: Any = object()
"""In place of a schema: the writer has no such type in this format."""

Right = Mapping[str, Any]
"""The value, as `rowkind` shows it, by the declared type. Any other type is refused, or the record a dead letter."""


@dataclass(frozen=True)
class Sent:
    """A type of a writer's with one value of it.

    - `avro`: its Avro schema; `value` as fastavro takes it, without the logical types of `avro`.
    - `connect`: its schema of Connect's as JSON; `json` the value as the JsonConverter writes it.
    - `right`: what is right where the schema is known; `plain`: where it is not, in JSON without a schema.
    - `note`: what else is to be said of it.
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
        """One of these stands in a refusal for the writer's type."""
        logical = self.avro.get("logicalType", "") if isinstance(self.avro, dict) else str(self.avro)
        return tuple(word for word in (self.name.partition(" (")[0], logical) if word)


def text(value: Any) -> str:
    """Bytes as Connect's JSON has them."""
    return base64.b64encode(value).decode()


def named(type_: str, name: str, **more: Any) -> dict[str, Any]:
    """A schema of Connect's with a name."""
    return {"type": type_, "optional": True, "name": name, "version": 1, **more}


def numbers(value: int, *, kind: str = "long", unit: bool = False) -> Right:
    """A whole number as the numeric types have it; one with a `unit` is no number to calculate with."""
    found: dict[str, Any] = {"BIGINT": value} | ({"INT": value} if kind == "int" else {})
    if not unit:
        found |= {"FLOAT": float(np.float32(value)), "DOUBLE": float(value), "DECIMAL(38,9)": f"{value}.000000000"}
        found |= {"DECIMAL(10,2)": f"{value}.00"} if abs(value) < 10**8 else {}
    return found


def moments(until: str, digits: int) -> Right:
    """A timestamp with so many digits of a second as the types have it that have as many, or that usually have less."""
    found: dict[str, Any] = {}
    for declared, most in (("TIMESTAMP(3)", 3), ("TIMESTAMP", 6), ("TIMESTAMP(9)", 9)):
        if digits <= most or most == 6:
            seconds, _, fraction = until.partition(".")
            shown = f"{seconds}.{fraction[:most]}" if fraction else seconds
            found |= {declared: f"{shown}Z", declared.replace("TIMESTAMP", "TIMESTAMP_NTZ"): shown}
    return found


def spelled(until: str) -> Right:
    """A timestamp in text: digits that a type does not have are cut off."""
    return {**moments(f"{until[:23]}", 3), **moments(until, 6)}


def times(text_: str, digits: int) -> Right:
    """A time of day, the same."""
    return ({"TIME(3)": text_} if digits <= 3 else {}) | {"TIME": text_}
