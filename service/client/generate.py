"""Generate random changes of a table, to try a job or to measure it.

Keys are counted up from 1, and other values are drawn at random by the column's type, as in Flink's datagen connector.
Unlike there, rows are also updated and deleted, may be late, and may be skewed.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from rowkind.avro.schema import Record
from rowkind.avro.type import Type
from rowkind.operators.changelog import ChangelogMode

GeneratedChange = tuple[str, dict[str, Any]]
"""A row kind, such as "+I", and a row."""

_LETTERS = string.ascii_lowercase
_WHOLE = ("int", "long")
_LARGEST = 1_000
"""Whole numbers are less than this, so that groups and joins find equal values."""
_LATE = timedelta(minutes=10)
"""The time by which a late row is older than the present."""


@dataclass(frozen=True)
class Composition:
    """The composition of the generated changes; every share is from 0 to 1.

    `updates` and `deletes` are shares of the changes, once there are rows. `nulls` is the share of NULL values in
    columns that allow NULL. `late` is the share of rows whose times are 10 minutes ago. `keys` is the maximum number of
    rows; beyond it, rows are updated instead of inserted. `skew` is Zipf's exponent for the choice of the row that is
    updated or deleted; with 0, all rows are equally likely.
    """

    updates: float = 0.3
    deletes: float = 0.1
    nulls: float = 0.0
    late: float = 0.0
    keys: int = 10_000
    skew: float = 0.0


class ChangeGenerator:
    """Generates changes of a table with these columns, key and mode; equal seeds give equal changes, except for times.

    In an append table, every change is an insertion. A retract table gets `-U` and `+U` with full rows, an upsert table
    `+U`.
    """

    def __init__(
        self,
        record: Record,
        key: Sequence[str],
        mode: ChangelogMode,
        shares: Composition = Composition(),
        seed: int = 0,
    ) -> None:
        self._key, self._mode, self._shares = key, mode, shares
        self._draw = random.Random(seed)  # noqa: S311 - the data is reproducible, not secret
        self._columns = {column.name: self._maker(column.type) for column in record.fields}
        self._nullable = {column.name for column in record.fields if column.type.nullable and column.name not in key}
        self._counted = [name for name in key if record.type(name).kind in _WHOLE]
        self._rows: list[dict[str, Any]] = []
        self._next = 1
        self._now = datetime.now(UTC)

    def __iter__(self) -> Iterator[GeneratedChange]:
        """Yield changes without end."""
        while True:
            yield from self._one()

    def _one(self) -> Iterator[GeneratedChange]:
        self._now = datetime.now(UTC) - (_LATE if self._draw.random() < self._shares.late else timedelta())
        chance = self._draw.random()
        if self._mode != "append" and self._rows and chance < self._shares.deletes:
            yield "-D", self._rows.pop(self._chosen())
        elif (
            self._mode != "append"
            and self._rows
            and (chance < self._shares.deletes + self._shares.updates or len(self._rows) >= self._shares.keys)
        ):
            at = self._chosen()
            before, self._rows[at] = self._rows[at], self._row() | {name: self._rows[at][name] for name in self._key}
            if self._mode == "retract":
                yield "-U", before
            yield "+U", self._rows[at]
        else:
            row = self._row() | dict.fromkeys(self._counted, self._next)
            self._next += 1
            if self._mode != "append":
                self._rows.append(row)
            yield "+I", row

    def _chosen(self) -> int:
        """Return the index of a row. With a skew, early rows are chosen more often, as in a Zipf distribution."""
        count, skew = len(self._rows), self._shares.skew
        if not skew:
            return self._draw.randrange(count)
        # The inverse of the continuous distribution with the density x ** -skew on [1, count + 1).
        chance = self._draw.random()
        if skew == 1:
            return min(int((count + 1) ** chance), count) - 1
        power = 1 - skew
        return min(int((1 + chance * ((count + 1) ** power - 1)) ** (1 / power)), count) - 1

    def _row(self) -> dict[str, Any]:
        return {
            name: None if name in self._nullable and self._draw.random() < self._shares.nulls else make()
            for name, make in self._columns.items()
        }

    def _maker(self, type_: Type) -> Callable[[], Any]:
        """Return a function that makes random values of a type."""
        draw, name = self._draw, type_.logical or type_.kind
        if name in ("array", "map", "record"):
            return self._nested(type_)
        if "timestamp" in name:
            return lambda: self._now.replace(tzinfo=None) if name.startswith("local") else self._now
        if name.startswith("time-"):
            return lambda: self._now.time()  # noqa: PLW0108 - the present is another one in each call
        most = 10 ** min(type_.precision, 3 + type_.scale) - 1
        makers: dict[str, Callable[[], Any]] = {
            "boolean": lambda: draw.random() < 0.5,
            "bytes": lambda: draw.randbytes(8),
            "date": lambda: self._now.date() - timedelta(days=draw.randrange(365)),
            "decimal": lambda: Decimal(draw.randint(0, most)).scaleb(-type_.scale),
            "enum": lambda: draw.choice(type_.symbols),
            "fixed": lambda: draw.randbytes(type_.size),
            "uuid": lambda: str(UUID(int=draw.getrandbits(128))),
            **dict.fromkeys(("float", "double"), lambda: round(draw.uniform(0, 1_000), 3)),
            **dict.fromkeys(_WHOLE, lambda: draw.randrange(_LARGEST)),
        }
        return makers.get(name, lambda: "".join(draw.choices(_LETTERS, k=8)))

    def _nested(self, type_: Type) -> Callable[[], Any]:
        if type_.items is None:
            parts = {each.name: self._maker(each.type) for each in type_.fields}
            return lambda: {name: part() for name, part in parts.items()}
        item = self._maker(type_.items)
        if type_.kind == "map":
            return lambda: {name: item() for name in _LETTERS[:2]}
        return lambda: [item() for _ in range(self._draw.randrange(4))]
