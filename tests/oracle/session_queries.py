"""Random queries over session windows, and a model of sessions in plain Python.

Each query is written twice. For the job it uses the table functions: in derived tables, WITH, views or directly. For
DuckDB it reads the rows of the model, each with the window of its session.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Row = tuple[int, int | None, int | None, datetime]
"""The columns id, k, v, ts of a row."""

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = (
    "id BIGINT, k INT, v INT, ts TIMESTAMPTZ, window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, window_time TIMESTAMPTZ"
)
_RENAMED = {"window_start": "ws", "window_end": "we", "window_time": "wt"}


@dataclass(frozen=True)
class Sessions:
    """A SESSION table function over a table: a filter on its input, the partition columns, and the gap in minutes."""

    table: str
    partition: tuple[str, ...]
    gap: int
    least: int | None = None

    @property
    def sql(self) -> str:
        """Return the call as FROM has it."""
        rows = f"TABLE {self.table}"
        if self.least is not None:
            rows = f"(SELECT * FROM {self.table} WHERE v >= {self.least})"
        by = f" PARTITION BY ({', '.join(self.partition)})" if self.partition else ""
        return f"TABLE(SESSION({rows}{by}, DESCRIPTOR(ts), INTERVAL '{self.gap}' MINUTE))"

    def rows(self, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
        """Return all rows with their session's window: first time, last time plus gap, and that end minus 1 ms."""
        gap, parts = timedelta(minutes=self.gap), defaultdict[tuple[Any, ...], list[Row]](list)
        for row in rows:
            if self.least is None or (row[2] is not None and row[2] >= self.least):
                parts[tuple(row[("id", "k", "v").index(name)] for name in self.partition)].append(row)
        found = []
        for part in parts.values():
            sessions: list[list[Row]] = []
            for row in sorted(part, key=lambda each: each[3]):
                if sessions and row[3] - sessions[-1][-1][3] <= gap:
                    sessions[-1].append(row)
                else:
                    sessions.append([row])
            for session in sessions:
                end = session[-1][3] + gap
                found += [(*row, session[0][3], end, end - timedelta(milliseconds=1)) for row in session]
        return found


@dataclass
class SessionQuery:
    """A query for the job with its views, and for DuckDB over the model's relations, by name."""

    sql: str = ""
    oracle: str = ""
    views: dict[str, str] = field(default_factory=dict)
    relations: dict[str, Sessions] = field(default_factory=dict)
    ctes: list[str] = field(default_factory=list)


@dataclass
class _Source:
    """One relation in FROM: its alias, and its text for the job and for DuckDB."""

    alias: str
    sql: str
    oracle: str
    renamed: bool

    def column(self, name: str) -> str:
        """Return a column by the name that it has here."""
        return f"{self.alias}.{_RENAMED.get(name, name) if self.renamed else name}"


def random_session_query(dice: random.Random, tables: Sequence[str]) -> SessionQuery:
    """Return a random query over sessions of these tables."""
    query = SessionQuery()
    form = dice.choice(_FORMS)
    sql, oracle = form(dice, query, tables)
    ctes = f"WITH {', '.join(query.ctes)} " if query.ctes else ""
    query.sql, query.oracle = ctes + sql, oracle
    return query


def _source(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> _Source:
    """Return rows of sessions, written in one of the possible ways."""
    number = len(query.relations)
    alias, name = f"s{number}", f"m{number}"
    sessions = Sessions(
        dice.choice(tables),
        dice.choice([(), ("k",), ("k",), ("k",), ("v",), ("k", "v")]),
        dice.choice([5, 10]),
        dice.choice([None, None, None, 2]),
    )
    query.relations[name] = sessions
    where = _condition(dice, lambda column: column) if dice.random() < 0.3 else ""
    renamed = dice.random() < 0.4
    columns = ", ".join(f"{column} AS {_RENAMED[column]}" for column in _RENAMED)
    list_ = f"id, k, v, ts, {columns}" if renamed else "*"
    if not renamed and dice.random() < 0.4:
        oracle = f"(SELECT * FROM {name}{where}) AS {alias}"
        return _Source(
            alias, f"{sessions.sql} AS {alias}" if not where else _nested(sessions, alias, where), oracle, False
        )
    inner = f"SELECT {list_} FROM {sessions.sql}{where}"
    if dice.random() < 0.3:
        inner = f"SELECT * FROM ({inner})"
    oracle = f"(SELECT {list_} FROM {name}{where}) AS {alias}"
    match dice.randrange(3):
        case 0:
            return _Source(alias, f"({inner}) AS {alias}", oracle, renamed)
        case 1:
            query.ctes.append(f"c{number} AS ({inner})")
            return _Source(alias, f"c{number} AS {alias}", oracle, renamed)
        case _:
            query.views[f"w{number}"] = inner
            return _Source(alias, f"w{number} AS {alias}", oracle, renamed)


def _nested(sessions: Sessions, alias: str, where: str) -> str:
    return f"(SELECT * FROM {sessions.sql}{where}) AS {alias}"


def _condition(dice: random.Random, column: Any) -> str:
    """Return a WHERE clause over rows of sessions."""
    minutes = 5 * dice.randrange(8)
    at = f"TIMESTAMP '{(BEGINNING + timedelta(minutes=minutes)).strftime('%Y-%m-%d %H:%M:%S')}'"
    each = [
        f"{column('v')} >= {dice.randrange(4)}",
        f"{column('k')} = {dice.randrange(3)}",
        f"{column('id')} % 2 = 0",
        f"{column('window_start')} >= {at}",
        f"{column('window_end')} > {at}",
        f"{column('ts')} > {column('window_start')}",
        f"{column('k')} < {column('v')} OR {column('window_time')} < {at}",
    ]
    return " WHERE " + " AND ".join(f"({one})" for one in dice.sample(each, dice.choice([1, 1, 2])))


Written = tuple[str, str]


def _twice(template: str, *sources: _Source) -> Written:
    """Return a query for the job and for DuckDB, with `{0}` and `{1}` replaced by the relations in FROM."""
    return template.format(*(each.sql for each in sources)), template.format(*(each.oracle for each in sources))


def _rows(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    s = _source(dice, query, tables)
    some = dice.sample(["k", "v", "ts", "window_start", "window_end", "window_time"], dice.randrange(1, 5))
    items = ", ".join(f"{s.column(name)} AS c{number}" for number, name in enumerate(["id", *some]))
    where = _condition(dice, s.column) if dice.random() < 0.6 else ""
    return _twice(f"SELECT {dice.choice(['', '', 'DISTINCT '])}{items} FROM {{0}}{where}", s)


def _group(dice: random.Random, s: _Source) -> list[str]:
    """Return grouping columns in any order, finer or coarser than sessions."""
    windows = dice.choice(
        [
            ["window_start", "window_end"],
            ["window_start", "window_end", "window_time"],
            ["window_start", "window_end"],
            ["window_start", "window_time"],
            ["window_start"],
            ["window_end"],
            [],
        ]
    )
    others = dice.choice([["k"], ["k"], ["v"], ["k", "v"], ["k", "id"], [] if windows else ["k"]])
    found = [s.column(name) for name in [*windows, *others]]
    if dice.random() < 0.15:
        found.append(f"{s.column('v')} % 2")
    dice.shuffle(found)
    return found


def _grouped(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    s = _source(dice, query, tables)
    groups = _group(dice, s)
    calls = [
        "COUNT(*)",
        f"SUM({s.column('v')})",
        f"MIN({s.column('ts')})",
        f"MAX({s.column('window_end')})",
        f"COUNT(DISTINCT {s.column('window_end')})",
        f"COUNT(*) FILTER (WHERE {s.column('v')} > 1)",
        f"MAX({s.column('window_time')}) FILTER (WHERE {s.column('id')} % 2 = 0)",
    ]
    listed = [*dice.sample(groups, dice.randrange(1, len(groups) + 1)), *dice.sample(calls, dice.choice([1, 1, 2]))]
    items = ", ".join(f"{each} AS c{number}" for number, each in enumerate(listed))
    where = _condition(dice, s.column) if dice.random() < 0.4 else ""
    having = f" HAVING {dice.choice(['COUNT(*) > 1', *(f'{each} IS NOT NULL' for each in groups)])}"
    having = having if dice.random() < 0.2 else ""
    by = f"ROLLUP ({', '.join(groups)})" if dice.random() < 0.1 else ", ".join(groups)
    return _twice(f"SELECT {items} FROM {{0}}{where} GROUP BY {by}{having}", s)


def _regrouped(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    """Return an aggregate over an aggregate."""
    s = _source(dice, query, tables)
    start, end, k = (s.column(name) for name in ("window_start", "window_end", "k"))
    inner = f"SELECT {k} AS k, {start} AS b, {end} AS e, COUNT(*) AS n FROM {{0}} GROUP BY {k}, {start}, {end}"
    outer = dice.choice(
        [
            "SELECT e, SUM(n) AS n, COUNT(*) AS m FROM ({0}) AS g GROUP BY e",
            "SELECT k, MAX(e) AS e, SUM(n) AS n FROM ({0}) AS g GROUP BY k",
            "SELECT b, e, n FROM ({0}) AS g WHERE n > 1 AND (e > b OR k = 1)",
            "SELECT e, n FROM ({0}) AS g WHERE g.k = 1",
        ]
    )
    return _twice(outer.format(inner), s)


def _ranked(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    s = _source(dice, query, tables)
    parts = ", ".join(_group(dice, s)) or s.column("k")
    order = dice.choice([f"{s.column('ts')} DESC, {s.column('id')}", f"{s.column('v')}, {s.column('id')}"])
    items = ", ".join(f"{s.column(name)} AS {name}" for name in ("id", "window_start", "window_end"))
    inner = f"SELECT {items}, ROW_NUMBER() OVER (PARTITION BY {parts} ORDER BY {order}) AS rn FROM {{0}}"
    return _twice(f"SELECT id, window_start, window_end FROM ({inner}) AS r WHERE rn <= {dice.choice([1, 2])}", s)


def _set_operation(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    word = dice.choice(["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])
    some = dice.sample(["k", "v", "window_start", "window_end"], dice.randrange(1, 4))
    sides = []
    for _ in range(2):
        s = _source(dice, query, tables)
        items = ", ".join(f"{s.column(name)} AS {name}" for name in some)
        grouped = dice.random() < 0.3
        by = f" GROUP BY {', '.join(s.column(name) for name in some)}" if grouped else ""
        sides.append(_twice(f"SELECT {items} FROM {{0}}{by}", s))
    return f"{sides[0][0]} {word} {sides[1][0]}", f"{sides[0][1]} {word} {sides[1][1]}"


def _joined(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    a, b = _source(dice, query, tables), _source(dice, query, tables)
    kind = dice.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    names = dice.choice([["k", "window_start", "window_end"], ["k"], ["window_end"], ["k", "window_start"]])
    on = " AND ".join(f"{a.column(name)} = {b.column(name)}" for name in names)
    items = (
        f"{a.column('id')} AS a, {b.column('id')} AS b, {a.column('window_end')} AS e, {b.column('window_end')} AS f"
    )
    return _twice(f"SELECT {items} FROM {{0}} {kind} {{1}} ON {on}", a, b)


def _asked(dice: random.Random, query: SessionQuery, tables: Sequence[str]) -> Written:
    """Return a query with sessions in a subquery."""
    a, b = _source(dice, query, tables), _source(dice, query, tables)
    same = f"{a.column('k')} = {b.column('k')}"
    if dice.random() < 0.5:
        no = dice.choice(["", "NOT "])
        more = f" AND {b.column('window_end')} > {a.column('window_start')}" if dice.random() < 0.5 else ""
        where = f"{no}EXISTS (SELECT 1 FROM {{1}} WHERE {same}{more})"
        return _twice(f"SELECT {a.column('id')} AS id, {a.column('window_end')} AS e FROM {{0}} WHERE {where}", a, b)
    end, start = b.column("window_end"), b.column("window_start")
    value = dice.choice([f"MAX({end})", f"COUNT(DISTINCT {start})", f"MIN({start})"])
    more = f" AND {start} > {a.column('ts')}" if dice.random() < 0.5 else ""
    value = f"(SELECT {value} FROM {{1}} WHERE {same}{more})"
    return _twice(f"SELECT {a.column('id')} AS id, {value} AS c FROM {{0}}", a, b)


_FORMS = (_rows, _grouped, _grouped, _grouped, _grouped, _regrouped, _ranked, _set_operation, _joined, _asked)
