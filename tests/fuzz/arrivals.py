"""Queries whose result depends on the arrival order of rows, and a model of their result.

The arrival of a row is the position of the record that wrote it last. Each +I and +U is a new arrival, even if it
changes no column that the query reads. The result is therefore a function of a table's rows in the order of their last
writes, in which `Rows` lists them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.fuzz.changelogs import Row, Rows
from tests.fuzz.oracle import Bag

COLUMNS = ("id", "k", "v", "s")
"""The columns that queries read: integers and a text. The table may have more columns."""

_OVER = ("LAG(v)", "LAG(v, 2)", "LEAD(v)", "ROW_NUMBER()", "FIRST_VALUE(s)", "LAST_VALUE(s)", "SUM(v)", "COUNT(s)")
_CALLS = ("FIRST(v)", "LAST(v)", "FIRST(s)", "LAST(s)", "FIRST(v, true)", "LAST(s, true)", "FIRST(id)", "LAST(id)")


@dataclass(frozen=True)
class Arrival:
    """A query over one table.

    `order` is a column, or None for the arrival itself. `first` and `last` are the numbers of the rows that are kept.
    `calls` are aggregates or window functions. If `least` is given, only rows with a greater `v` are read.
    """

    form: Literal["groups", "rank", "over", "limit", "top", "conflict"]
    table: str
    by: tuple[str, ...] = ()
    order: str | None = None
    descending: bool = False
    first: int = 1
    last: int = 1
    numbered: bool = False
    calls: tuple[str, ...] = ()
    read: tuple[str, ...] = COLUMNS
    least: int | None = None

    @property
    def sql(self) -> str:
        """Return the query."""
        read = ", ".join(self.read)
        where = f" WHERE v > {self.least}" if self.least is not None else ""
        by = f"PARTITION BY {', '.join(self.by)} " if self.by else ""
        order = f"ORDER BY {self.order or 'PROCTIME()'}{' DESC' if self.descending else ''}"
        match self.form:
            case "groups":
                calls = [f"{call} AS c{number}" for number, call in enumerate(self.calls)]
                groups = f" GROUP BY {', '.join(self.by)}" if self.by else ""
                return f"SELECT {', '.join((*self.by, *calls))} FROM {self.table}{where}{groups}"
            case "rank":
                inner = f"SELECT {read}, ROW_NUMBER() OVER ({by}{order}) AS n FROM {self.table}{where}"
                number = ", n" if self.numbered else ""
                return f"SELECT {read}{number} FROM ({inner}) WHERE n BETWEEN {self.first} AND {self.last}"
            case "over":
                rows = " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
                frames = [rows if call[:3] in ("FIR", "LAS", "SUM", "COU") else "" for call in self.calls]
                calls = [
                    f"{call} OVER ({by}{order}{frame}) AS c{number}"
                    for number, (call, frame) in enumerate(zip(self.calls, frames, strict=True))
                ]
                return f"SELECT {', '.join((read, *calls))} FROM {self.table}{where}"
            case "limit" | "top":
                offset = f" OFFSET {self.first - 1}" if self.first > 1 else ""
                count = self.last - self.first + 1
                said = f" {order}" if self.form == "top" else ""
                return f"SELECT {read} FROM {self.table}{where}{said} LIMIT {count}{offset}"
        return f"SELECT {read} FROM {self.table}{where}"

    @property
    def sink(self) -> dict[str, Any]:
        """Return the entry of a sink for the query."""
        if self.form != "conflict":
            return {"mode": "retract"}
        return {"mode": "upsert", "key": list(self.by), "on_conflict": "last" if self.descending else "first"}

    def result(self, tables: Mapping[str, Rows]) -> Bag:
        """Return the rows of the result over the rows of the tables, which are in order of arrival."""
        rows = [row for _, row in tables[self.table].live]
        if self.least is not None:
            rows = [row for row in rows if row["v"] is not None and row["v"] > self.least]
        parts: dict[tuple[Any, ...], list[Row]] = {} if self.by else {(): []}
        for row in rows:
            parts.setdefault(tuple(row[name] for name in self.by), []).append(row)
        found: list[tuple[Any, ...]] = []
        for key, part in parts.items():
            ordered = self._ordered(part)
            kept = range(self.first - 1, min(self.last, len(ordered)))
            match self.form:
                case "groups":
                    found.append((*key, *(_aggregated(call, part) for call in self.calls)))
                case "over":
                    for at, row in enumerate(ordered):
                        found.append((*self._shown(row), *(_windowed(call, ordered, at) for call in self.calls)))
                case "rank":
                    found += [(*self._shown(ordered[at]), *([at + 1] if self.numbered else [])) for at in kept]
                case "limit" | "top":
                    found += [self._shown(ordered[at]) for at in kept]
                case "conflict":
                    found.append(self._shown(part[-1 if self.descending else 0]))
        return Counter(found)

    def _ordered(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in their order, equal ones by arrival; NULL is the least value."""
        if self.form in ("groups", "limit", "conflict"):
            return list(rows)
        if self.order is None:
            return list(reversed(rows)) if self.descending else list(rows)
        name = self.order
        if self.descending:
            return sorted(rows, key=lambda row: (row[name] is None, -(row[name] or 0)))
        return sorted(rows, key=lambda row: (row[name] is not None, row[name] or 0))

    def _shown(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.read)


def _aggregated(call: str, rows: Sequence[Row]) -> Any:
    """Return FIRST or LAST of a column, ignoring NULLs if the call has `true`."""
    function, column, ignoring = _parts(call)
    values = [row[column] for row in rows if row[column] is not None or not ignoring]
    return None if not values else values[0 if function == "FIRST" else -1]


def _windowed(call: str, rows: Sequence[Row], at: int) -> Any:
    """Return a window function's result at the row `at`; its frame, if any, is the row before and the row itself."""
    function, column, more = _parts(call)
    if function == "ROW_NUMBER":
        return at + 1
    if function in ("LAG", "LEAD"):
        other = at + int(more or 1) * (1 if function == "LEAD" else -1)
        return rows[other][column] if 0 <= other < len(rows) else None
    frame = [row[column] for row in rows[max(0, at - 1) : at + 1]]
    there = [value for value in frame if value is not None]
    match function:
        case "FIRST_VALUE":
            return frame[0]
        case "LAST_VALUE":
            return frame[-1]
        case "COUNT":
            return len(there)
    return sum(there) if there else None


def _parts(call: str) -> tuple[str, str, str]:
    """Return the function of a call, its column, and a further argument."""
    function, _, arguments = call.rstrip(")").partition("(")
    column, _, more = arguments.partition(", ")
    return function, column, more


def random_arrival(rng: random.Random, table: str) -> Arrival:
    """Return a random query over a table."""
    form = rng.choice(("groups", "groups", "rank", "rank", "over", "over", "limit", "top", "conflict"))
    by: tuple[str, ...] = rng.choice((("k",), ("k",), ("k", "s"), ()))
    read = tuple(rng.sample(COLUMNS, rng.randint(1, 4)))
    calls = tuple(rng.sample(_CALLS if form == "groups" else _OVER, rng.randint(1, 3)))
    first = rng.choice((1, 1, 1, 2))
    order = rng.choice(("v", "v", "k", None))
    if form == "conflict":
        by, read = ("k",), tuple(dict.fromkeys(("k", *read)))
    if form == "top":
        order = order or "v"
    return Arrival(
        form,
        table,
        () if form in ("limit", "top") else by,
        order,
        rng.random() < 0.5,
        first,
        first + rng.choice((0, 0, 1)),
        rng.random() < 0.4,
        calls,
        read,
        rng.choice((None, None, None, 0, 1)),
    )
