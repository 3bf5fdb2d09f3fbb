"""The meaning of a number that is a date, a time or a timestamp: which of the three it is, and in which unit.

Avro has logical types for some of these numbers, Debezium has names for others, and a table may declare the unit of a
bare number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.avro.time_text import PER_SECOND
from rowkind.avro.type import Type

TimeUnit = Literal["days", "seconds", "millis", "micros", "nanos"]

UNITS: Mapping[str, int] = {"days": 0, "seconds": 1, **PER_SECOND}
"""The units that a table may declare for a number, as units per second; 0 for days."""

_OF = {"date": "date", "time": "time", "timestamp": "timestamp", "local-timestamp": "timestamp"}
_SAID: Mapping[str, tuple[str, int]] = {"io.debezium.time.NanoTime": ("time", PER_SECOND["nanos"])}
"""The kinds and units of Debezium's numbers for which Avro has no logical type."""

_FINEST_USUAL = PER_SECOND["micros"]
"""The unit of TIME and TIMESTAMP, which is the finest unit in which SQL computes. Finer digits are cut off."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """The kind and unit of a number. Dates and timestamps are counted from 1970, times from midnight.

    `per_second` is the number of units per second, 0 for days.
    """

    of: str
    per_second: int


def ticks(type_: Type, wanted: Ticks | None = None) -> Ticks | None:
    """Return the kind and unit of a type's numbers, or None if they are neither dates nor times.

    A bare number has a unit only if the table declares it; its kind is then the kind of `wanted`.
    """
    if type_.logical is not None:
        base, _, unit = type_.logical.rpartition("-")
        if type_.logical == "date":
            return Ticks("date", 0)
        return Ticks(_OF[base], PER_SECOND[unit]) if base in _OF else None
    if type_.says in UNITS and wanted is not None:
        return Ticks(wanted.of, UNITS[type_.says])
    return Ticks(*_SAID[type_.says]) if type_.says in _SAID else None


def readable(source: Ticks, wanted: Ticks) -> bool:
    """Return whether numbers of `source` can be read as `wanted`. Digits may be cut off only for the usual unit."""
    if source.of != wanted.of or (source.per_second == 0) != (wanted.per_second == 0):
        return False
    return source.per_second <= wanted.per_second or wanted.per_second == _FINEST_USUAL


@lru_cache(maxsize=256)
def with_units(writer: Record, units: tuple[tuple[str, TimeUnit], ...]) -> Record:
    """Return a writer's record in which bare numbers in the given columns have the units that the table declares."""
    said = dict(units)
    return replace(
        writer,
        fields=tuple(
            replace(field, type=replace(field.type, says=said[field.name])) if _bare(field.type, field.name, said)
            else field
            for field in writer.fields
        ),
    )  # fmt: skip


def _bare(type_: Type, name: str, said: Mapping[str, TimeUnit]) -> bool:
    return name in said and type_.kind in ("int", "long") and type_.logical is None and not type_.says
