"""Tables whose rows are in windows of time: views of a job, and what is in them.

To the grammar such a view is a table like another one. So queries group by windows, rank within them and join them, or
do with their columns what nobody would. Where the table has a watermark its delay is so long that nothing is late.
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
    """A view of a job over one of its tables, and its rows by a way of its own."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def table(self) -> str:
        """The table."""

    @property
    def sql(self) -> str:
        """Its query."""

    def rows(self, table: pa.Table) -> pa.Table:
        """Its rows, given those of the table."""


@dataclass(frozen=True)
class Windowed:
    """The rows of a table in windows of a time of theirs.

    `size` is how long a window is, in hours, or how long there is nothing between two sessions; windows that overlap
    begin, or end, every `step` hours. Sessions are those of rows with the same `of`.
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
        """The view."""
        size, step = (f"INTERVAL '{each}' HOUR" for each in (self.size, self.step))
        lengths = f"{step}, {size}" if self.kind in ("HOP", "CUMULATE") else size
        by = f" PARTITION BY {self.of}" if self.of is not None else ""
        return f"SELECT * FROM TABLE({self.kind}(TABLE {self.table}{by}, DESCRIPTOR({self.column}), {lengths}))"

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows of the table in their windows; one without a time is in none."""
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
    """The tables, most of those that have no time with one."""
    untimed = [all(column.type != "TIMESTAMP" for column in each.columns) and rng.random() < _SHARE for each in tables]
    time = Column("ts", "TIMESTAMP")
    return [
        replace(each, columns=(*each.columns, time)) if missing else each
        for each, missing in zip(tables, untimed, strict=True)
    ]


def random_windows(rng: random.Random, tables: Sequence[Table]) -> list[Windowed]:
    """Windows of some of the tables that have a time."""
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
    """What the grammar takes windows for: a table, whose rows nobody says the order of arrival of."""
    (of,) = (each for each in tables if each.name == windows.table)
    columns = (*of.columns, *(Column(name, "TIMESTAMP", required=True) for name in _ADDED))
    return replace(of, name=windows.name, mode="retract", columns=columns, primary_key=())


def with_watermarks(
    rng: random.Random, entries: Mapping[str, Mapping[str, Any]], windows: Sequence[Windowed]
) -> dict[str, Mapping[str, Any]]:
    """The entries of the tables, most of them with the watermark by which some of their windows close."""
    found = dict(entries)
    for each in windows:
        if rng.random() < _SHARE:
            found[each.table] = {**entries[each.table], "watermark": {"column": each.column, **_LATE}}
    return found
