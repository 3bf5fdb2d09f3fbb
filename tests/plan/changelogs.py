"""Random changelogs for the tables of a job, in the form of each kind of table, and the rows that they result in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.json_rows import encode_keys
from rowkind.avro.schema import Record, Type
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk

Row = dict[str, Any]

_TRIES = 200
"""The limit of steps per batch, even an empty one: an append table with a key runs out of changes."""


_VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    "INT": lambda rng: rng.randint(1, 6),
    "BIGINT": lambda rng: rng.randint(1, 6),
    "DOUBLE": lambda rng: rng.choice([0.0, -0.0, 1.0, 2.0, 2.5, float("nan")]),
    "STRING": lambda rng: rng.choice(["", "a", "b", "A%", "é_"]),
    "DATE": lambda rng: date(2026, 1, rng.randint(1, 4)),
    "TIMESTAMP": lambda rng: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=rng.randint(0, 72)),
    "BOOLEAN": lambda rng: rng.random() < 0.5,
    "DECIMAL": lambda rng: Decimal(rng.randint(0, 60)).scaleb(-1),
}
"""Values from a small range, so that keys are equal often."""


def random_value(rng: random.Random, type_: Type) -> Any:
    """Return a value from a small range, sometimes NULL."""
    if type_.nullable and rng.random() < 0.15:
        return None
    name = type_.sql.partition("(")[0]
    if name in _VALUES:
        return _VALUES[name](rng)
    match type_.kind:
        case "array":
            return [random_value(rng, type_.element) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        case "map":
            return {key: random_value(rng, type_.element) for key in rng.sample("abc", rng.randint(0, 3))}
        case "record":
            return {field.name: random_value(rng, field.type) for field in type_.fields}
    raise AssertionError(type_.sql)


@dataclass
class TableModel:
    """One table: its live rows, and random changes of them.

    With `bare_updates`, some -U are omitted. With `distinct_times`, no two timestamps are equal.
    """

    record: Record
    mode: str
    primary_key: tuple[str, ...]
    bare_updates: bool
    distinct_times: bool = False
    rows: list[Row] = field(default_factory=list)

    def step(self, rng: random.Random) -> list[tuple[RowKind, Row]]:
        """Return the changes of one random event."""
        row = {each.name: self._value(rng, each.type) for each in self.record.fields}
        old = self._same_key(row) if self.primary_key else None
        if self.mode == "append":
            return [] if old else [self._add(RowKind.INSERT, row)]
        if old is None and self.rows and rng.random() < 0.55:
            old = rng.choice(self.rows)
            if self.primary_key:
                row |= {column: old[column] for column in self.primary_key}
        if old is None:
            if not self.primary_key and self.rows and rng.random() < 0.3:
                row = dict(rng.choice(self.rows))
            return [self._add(RowKind.INSERT, row)]
        self.rows.remove(old)
        if rng.random() < 0.4:
            return [(RowKind.DELETE, old)]
        after = self._add(RowKind.UPDATE_AFTER, row)
        if self.mode == "upsert" or (self.bare_updates and rng.random() < 0.3):
            return [after]
        return [(RowKind.UPDATE_BEFORE, old), after]

    def _value(self, rng: random.Random, type_: Type) -> Any:
        value = random_value(rng, type_)
        if self.distinct_times and isinstance(value, datetime):
            value += timedelta(microseconds=rng.randrange(3_600_000_000))
        return value

    def _add(self, kind: RowKind, row: Row) -> tuple[RowKind, Row]:
        self.rows.append(row)
        return kind, row

    def _same_key(self, row: Row) -> Row | None:
        for other in self.rows:
            if all(other[column] == row[column] for column in self.primary_key):
                return other
        return None

    def packed(self, changes: list[tuple[int, RowKind, Row]]) -> Rows:
        """Encode changes with their arrival numbers; a delete of an upsert table has only its key."""
        by_key = [self.mode == "upsert" and kind == RowKind.DELETE for _, kind, _ in changes]
        payloads = [
            encode_keys(self.record, self.primary_key, [row])
            if alone
            else codec.encode(self.record, table_of(self.record, [row]))
            for alone, (*_, row) in zip(by_key, changes, strict=True)
        ]
        return Rows(
            np.array([kind for _, kind, _ in changes], np.int8),
            np.array([seq << 16 for seq, *_ in changes], np.int64),
            pa.concat_arrays(payloads),
        )


@dataclass
class World:
    """All tables of a job that a query reads, with their changes."""

    tables: Mapping[str, TableModel]
    rng: random.Random
    _seq: int = 0
    _left: list[tuple[str, RowKind, Row]] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job, names: Mapping[str, bool], seed: int, *, distinct_times: bool = False) -> World:
        """Return a world from table names, each with whether -U may be omitted."""
        models = {
            name: TableModel(
                declared(job, name), job.tables[name].mode, job.tables[name].primary_key, bare, distinct_times
            )
            for name, bare in names.items()
        }
        return cls(models, random.Random(seed))

    def batches(self, count: int) -> Iterator[tuple[dict[str, Rows], dict[str, pa.Table]]]:
        """Yield batches of changes with the tables after each; some updates are divided between two batches."""
        for _ in range(count):
            changes = self._left
            for _ in range(_TRIES):
                if len(changes) >= self.rng.choice((1, 2, 7, 25)):
                    break
                name = self.rng.choice(list(self.tables))
                changes += [(name, kind, row) for kind, row in self.tables[name].step(self.rng)]
            torn = bool(changes) and changes[-1][1] == RowKind.UPDATE_AFTER and self.rng.random() < 0.3
            self._left = []
            if torn and len(changes) > 1 and changes[-2][1] == RowKind.UPDATE_BEFORE:
                name, _, row = changes[-1]
                self._left, changes = [changes[-1]], changes[:-1]
                state = self._snapshot(without=(name, row))
            else:
                state = self._snapshot()
            yield self._encode(changes), state

    def _encode(self, changes: list[tuple[str, RowKind, Row]]) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        numbered = [(self._seq + number, *change) for number, change in enumerate(changes)]
        self._seq += len(changes)
        for name, model in self.tables.items():
            own = [(seq, kind, row) for seq, other, kind, row in numbered if other == name]
            if own:
                found[name] = model.packed(own)
        return found

    def _snapshot(self, without: tuple[str, Row] | None = None) -> dict[str, pa.Table]:
        state = {}
        for name, model in self.tables.items():
            rows = list(model.rows)
            if without is not None and without[0] == name:
                rows.remove(without[1])
            state[name] = table_of(model.record, rows)
        return state


def table_of(record: Record, rows: list[Row]) -> pa.Table:
    """Return rows as an Arrow table with the record's columns."""
    return pa.table(
        {each.name: pa.array([row[each.name] for row in rows], each.type.arrow) for each in record.fields},
        schema=record.arrow,
    )


def bare_updates(*sinks: PhysicalSink) -> dict[str, bool]:
    """Return the tables of some plans, each with whether the -U of updates may be omitted."""
    scans = [node for sink in sinks for node in walk(sink) if isinstance(node, PhysicalScan)]
    return {
        scan.source.table: all(not each.traits.needs_before for each in scans if each.source.table == scan.source.table)
        for scan in scans
    }
