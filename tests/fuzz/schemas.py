"""Random tables of a job: their modes, keys, columns and values.

Values have the form in which `rowkind try` reads them from JSON. They come from small ranges, so that keys match and
rows are equal. Among them are values that are equal in SQL but differ as bytes, and very large values.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["int", "decimal", "double", "ratio", "string", "boolean", "date", "timestamp"]
"""The grammar's classes of types. A ratio is a DOUBLE with unlimited digits, whose sums depend on their order."""

_TYPES: dict[Kind, tuple[str, ...]] = {
    "int": ("INT", "BIGINT", "BIGINT"),
    "decimal": ("DECIMAL(10,2)", "DECIMAL(8,1)"),
    "double": ("DOUBLE",),
    "string": ("STRING",),
    "boolean": ("BOOLEAN",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP",),
}
_NAMES: dict[str, tuple[Kind, ...]] = {
    "k": ("int", "int", "int", "string"),
    "j": ("int",),
    "s": ("string",),
    "v": ("int", "decimal", "double"),
    "w": ("decimal", "double", "boolean", "date", "timestamp", "string"),
    "d": ("date", "date", "timestamp"),
}
"""Few names with few kinds each, so that tables share names, as joins, USING and ambiguity tests need."""

_NULLS = 0.15
_DOUBLES = (0.0, -0.0, 1.0, 1.0, 2.0, 2.5, -1.25, 3.0, "NaN", 1e10, 2.0**53)
_LARGE = (10**12, 2**53, 2**53 + 1)
"""As a DOUBLE, the last of these equals the one before it."""

_STRINGS = ("", "a", "a", "a", "b", "b", "A%", "é_", "7", "ab")


@dataclass(frozen=True)
class Column:
    """A column and its type in SQL."""

    name: str
    type: str
    required: bool = False

    @property
    def kind(self) -> Kind:
        """Return the grammar's class of the type."""
        base = self.type.partition("(")[0]
        return next(kind for kind, types in _TYPES.items() if base in {each.partition("(")[0] for each in types})


@dataclass(frozen=True)
class Table:
    """A source table; `ttl_ms` is the TTL of its rows."""

    name: str
    mode: Literal["append", "retract", "upsert"]
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    exact: bool = False
    ttl_ms: int | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """Return the table's entry in a job file."""
        types = {each.name: f"{each.type}{' NOT NULL' if each.required else ''}" for each in self.columns}
        entry: dict[str, Any] = {"mode": self.mode, "columns": types}
        if self.primary_key:
            entry["primary_key"] = list(self.primary_key)
        if self.exact:
            entry["exact"] = True
        if self.ttl_ms is not None:
            entry["ttl"] = f"{self.ttl_ms}ms"
        return entry


def random_tables(rng: random.Random) -> list[Table]:
    """Return one to three random tables."""
    return [_random_table(rng, f"t{number}") for number in range(1, rng.choice((2, 3, 3, 4)))]


def _random_table(rng: random.Random, name: str) -> Table:
    mode = rng.choice(("append", "retract", "retract", "upsert"))
    names = rng.sample(list(_NAMES), rng.randint(2, 4))
    key = tuple(sorted(rng.sample(names, rng.choice((1, 1, 2)))))
    if mode != "upsert" and rng.random() < (0.8 if mode == "append" else 0.4):
        key = ()
    columns = []
    for column in names:
        kind = rng.choice(_NAMES[column])
        if column in key and kind in ("double", "decimal", "boolean"):
            kind = "int"
        columns.append(Column(column, rng.choice(_TYPES[kind]), column in key or rng.random() < 0.2))
    exact = mode == "retract" and rng.random() < 0.3
    return Table(name, mode, tuple(columns), key, exact)


def random_value(rng: random.Random, column: Column) -> Any:
    """Return a value of a column, sometimes NULL."""
    if not column.required and rng.random() < _NULLS:
        return None
    match column.kind:
        case "int":
            return rng.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, -1, 7 if column.type == "INT" else rng.choice(_LARGE)))
        case "decimal":
            scale = int(column.type.rstrip(")").rpartition(",")[2])
            units = rng.choice((0, 5, 10, 10, 25, 100, -10, 199))
            sign, units = "-" if units < 0 else "", abs(units)
            return f"{sign}{units // 10**scale}.{units % 10**scale:0{scale}}"
        case "double":
            return rng.choice(_DOUBLES)
        case "string":
            return rng.choice(_STRINGS)
        case "boolean":
            return rng.random() < 0.5
        case "date":
            return f"2026-01-0{rng.randint(1, 4)}"
        case "timestamp":
            return f"2026-01-0{rng.randint(1, 3)}T{rng.choice(('00', '12'))}:00:0{rng.choice(('0', '1.5'))}Z"
    raise AssertionError(column.type)
