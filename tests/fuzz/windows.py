"""Tables whose rows are in time windows: views of a job and a model of their rows.

For the grammar such a view is a table like any other. Queries therefore group by windows, rank within them and join
them, or use their columns in unusual ways. If the table has a watermark, its delay is so long that no row is late.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import pyarrow as pa

from tests.fuzz.schemas import Column, Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADDED = ("window_start", "window_end", "window_time")
_LATE = {"delay": "30d"}
_SHARE = 0.7


class View(Protocol):
    """A view of a job over one of its tables, with its own model of its rows."""

    @property
    def name(self) -> str:
        """Return the view's name."""

    @property
    def table(self) -> str:
        """Return the name of its table."""

    @property
    def sql(self) -> str:
        """Return its query."""

    def rows(self, table: pa.Table) -> pa.Table:
        """Return its rows for these rows of the table."""


@dataclass(frozen=True)
class Windowed:
    """The rows of a table in windows over one of their time columns.

    `size` is the length of a window in hours, or the gap of sessions. Overlapping windows begin, or end, every `step`
    hours. Sessions are those of rows with the same `of`.
    """

    name: str
    table: str
    column: str
    kind: Literal["TUMBLE", "HOP", "CUMULATE", "SESSION"]
    size: int
    step: int
    of: str | None = None

    @property
    def sql(self) -> str:
        """Return the view's query."""
        size, step = (f"INTERVAL '{each}' HOUR" for each in (self.size, self.step))
        lengths = f"{step}, {size}" if self.kind in ("HOP", "CUMULATE") else size
        by = f" PARTITION BY {self.of}" if self.of is not None else ""
        return f"SELECT * FROM TABLE({self.kind}(TABLE {self.table}{by}, DESCRIPTOR({self.column}), {lengths}))"

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of the table in their windows; a row without a time is in none."""
        columns = [pa.field(name, pa.timestamp("us", "UTC")) for name in _ADDED]
        timed = [row for row in table.to_pylist() if row[self.column] is not None]
        found = [
            row | {"window_start": start, "window_end": end, "window_time": end - timedelta(milliseconds=1)}
            for row, start, end in (self._sessions(timed) if self.kind == "SESSION" else self._windows(timed))
        ]
        return pa.Table.from_pylist(found, pa.schema([*table.schema, *columns]))

    def _windows(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], datetime, datetime]]:
        size, step = timedelta(hours=self.size), timedelta(hours=self.step)
        for each in rows:
            row, ts = dict(each), each[self.column]
            first = _EPOCH + (ts - _EPOCH) // size * size
            match self.kind:
                case "TUMBLE":
                    yield row, first, first + size
                case "CUMULATE":
                    ends = (first + step * number for number in range(1, self.size // self.step + 1))
                    yield from ((row, first, end) for end in ends if ts < end)
                case _:
                    last = _EPOCH + (ts - _EPOCH) // step * step
                    starts = (last - step * number for number in range(self.size // self.step))
                    yield from ((row, start, start + size) for start in starts)

    def _sessions(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], datetime, datetime]]:
        gap = timedelta(hours=self.size)
        parts: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for each in rows:
            parts[each[self.of] if self.of is not None else None].append(dict(each))
        for part in parts.values():
            session: list[dict[str, Any]] = []
            for row in sorted(part, key=lambda row: row[self.column]):
                if session and row[self.column] - session[-1][self.column] > gap:
                    yield from self._session(session, gap)
                    session = []
                session.append(row)
            yield from self._session(session, gap)

    def _session(
        self, rows: Sequence[dict[str, Any]], gap: timedelta
    ) -> Iterator[tuple[dict[str, Any], datetime, datetime]]:
        yield from ((row, rows[0][self.column], rows[-1][self.column] + gap) for row in rows)


def with_times(rng: random.Random, tables: Sequence[Table]) -> list[Table]:
    """Return the tables, with a time column added to most of those that have none."""
    untimed = [all(column.type != "TIMESTAMP" for column in each.columns) and rng.random() < _SHARE for each in tables]
    time = Column("ts", "TIMESTAMP")
    return [
        replace(each, columns=(*each.columns, time)) if missing else each
        for each, missing in zip(tables, untimed, strict=True)
    ]


def random_windows(rng: random.Random, tables: Sequence[Table]) -> list[Windowed]:
    """Return windows over some of the tables that have a time."""
    found = []
    for table in tables:
        times = [each.name for each in table.columns if each.type == "TIMESTAMP"]
        for number in range(rng.choice((1, 1, 2)) if times else 0):
            kind = rng.choice(("TUMBLE", "TUMBLE", "HOP", "CUMULATE", "SESSION"))
            step = rng.choice((6, 12))
            size = step * rng.choice((1, 2, 3, 4, 24)) if kind in ("HOP", "CUMULATE") else rng.choice((6, 12, 24))
            plain = [each.name for each in table.columns if each.kind in ("int", "string", "date")]
            of = rng.choice(plain) if kind == "SESSION" and plain and rng.random() < _SHARE else None
            name = f"{table.name}w{number}"
            found.append(Windowed(name, table.name, rng.choice(times), kind, size, step, of))
    return found


def seen_as(windows: Windowed, tables: Sequence[Table]) -> Table:
    """Return windows as a table for the grammar, whose order of arrival is not defined."""
    (of,) = (each for each in tables if each.name == windows.table)
    columns = (*of.columns, *(Column(name, "TIMESTAMP", required=True) for name in _ADDED))
    return replace(of, name=windows.name, mode="retract", columns=columns, primary_key=())


def with_watermarks(
    rng: random.Random, entries: Mapping[str, Mapping[str, Any]], windows: Sequence[Windowed]
) -> dict[str, Mapping[str, Any]]:
    """Return the entries of the tables, most of them with the watermark that closes some of their windows."""
    found = dict(entries)
    for each in windows:
        if rng.random() < _SHARE:
            found[each.table] = {**entries[each.table], "watermark": {"column": each.column, **_LATE}}
    return found
