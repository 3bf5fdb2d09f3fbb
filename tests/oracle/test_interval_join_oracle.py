"""Interval joins under watermarks against DuckDB over what a model of time lets through.

The model knows how far apart the times of a pair may lie. A row is late once the watermark, as it was before the batch,
has passed the last time at which it could meet a row that is on time; what is not late is accepted, insertions and
retractions alike. The result is SQL over what has been accepted so far. Where pads are held back, those are left out
that may still be taken back: of rows that have not settled yet.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rowkind.operators.arrangement.store import MemoryStore
from tests.clocked import Clocked, job_of
from tests.seeds import seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=4)
SECOND, MICRO = timedelta(seconds=1), timedelta(microseconds=1)
NEVER = timedelta(days=40_000)

Row = tuple[Any, ...]
Change = tuple[str, int, Row]


@dataclass(frozen=True)
class Bounds:
    """How much later the right time of a pair is than the left one: at least and at most; None for no bound.

    `slacks`: how far the times of left and right rows may lie behind the watermark.
    """

    earliest: timedelta | None
    latest: timedelta | None
    slacks: tuple[timedelta, timedelta] = (timedelta(), timedelta())

    def late(self) -> tuple[timedelta, timedelta]:
        """How far a watermark passes the times of left and right rows until they are late."""
        left, right = self.slacks
        of_left = left if self.latest is None else max(left, self.latest + right)
        of_right = right if self.earliest is None else max(right, left - self.earliest)
        return of_left, of_right

    def settled(self) -> tuple[timedelta, timedelta]:
        """How far it does until no match comes or goes."""
        left, right = self.late()
        of_left = NEVER if self.latest is None else max(left, self.latest + right)
        of_right = NEVER if self.earliest is None else max(right, left - self.earliest)
        return of_left, of_right


@dataclass
class Model:
    """What has been accepted of each table, and how far time has come."""

    bounds: Bounds
    time: str = "ts"
    marks: dict[str, datetime] = field(default_factory=dict)
    accepted: dict[str, Counter[Row]] = field(default_factory=lambda: {"a": Counter(), "b": Counter()})

    def watermark(self) -> datetime:
        """That of both tables, in whole milliseconds."""
        mark = min(self.marks.get(name, datetime.min.replace(tzinfo=UTC)) for name in "ab")
        return mark.replace(microsecond=mark.microsecond // 1000 * 1000)

    def moment(self, row: Row) -> datetime | None:
        """The time of a row by which it is joined."""
        found = row[3] if self.time == "ts" else row[4]
        if type(found) is date:
            return datetime(found.year, found.month, found.day, tzinfo=UTC)
        return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)

    def batch(self, changes: Sequence[Change]) -> int:
        """Take in a batch, and say how many of it were late; what it moves counts from its end on."""
        before, lost = self.watermark(), 0
        for table, sign, row in changes:
            time = self.moment(row)
            if time is not None and before > time + self.bounds.late()[table == "b"]:
                lost += 1
            else:
                self.accepted[table][row] += sign
        for table, _, row in changes:
            self.marks[table] = max(self.marks.get(table, row[3] - DELAY), row[3] - DELAY)
        return lost

    def query(self, sql: str) -> Counter[Row]:
        """What the query is over what has been accepted."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, rows in self.accepted.items():
                kind = {"ts": "TIMESTAMPTZ", "n": "TIMESTAMP", "d": "DATE"}[self.time]
                connection.execute(f"CREATE TABLE {name} (id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, n {kind})")
                there = [row for row, count in rows.items() for _ in range(count)]
                if there:
                    connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", there)
            return Counter(connection.execute(sql).fetchall())

    def settled(self, result: Counter[Row], kind: str) -> Counter[Row]:
        """The result without pads that may still go: rows are (left id, right id, left time, right time)."""
        now, (of_left, of_right) = self.watermark(), self.bounds.settled()

        def waits(row: Row) -> bool:
            left, right = row[2:]
            if kind in ("left", "full", "anti") and right is None and left is not None:
                return bool(now <= _utc(left) + of_left)
            return kind in ("right", "full") and left is None and right is not None and now <= _utc(right) + of_right

        return Counter({row: count for row, count in result.items() if not waits(row)})


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def changes_of(dice: random.Random, mode: str, count: int, time: str = "ts") -> list[Change]:
    """Changes of both tables, out of order by some seconds, often at the very edge of an interval of another row."""
    now, found = START, []
    live: dict[str, list[Row]] = {"a": [], "b": []}
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 0, 1, 1, 2, 9)))
        table = dice.choice("ab")
        if mode == "retract" and live[table] and dice.random() < 0.35:
            row = live[table].pop(dice.randrange(len(live[table])))
            found.append((table, -1, row))
            continue
        ts = now - timedelta(
            seconds=dice.choice((0, 0, 1, 3, 5, 9, 14, 19, 24, 40)),
            milliseconds=dice.choice((0, 0, 250)),
            microseconds=dice.choice((0, 0, 1, 999)),
        )
        if live["a"] and dice.random() < 0.3:
            edge = dice.choice(live["a" if table == "b" else "b"] or live["a"])[3]
            ts = edge + dice.choice((-10, -5, 0, 5, 10)) * SECOND + dice.choice((-1, 0, 0, 1)) * MICRO
        other: Any = {"ts": None, "n": ts.replace(tzinfo=None), "d": ts.date()}[time]
        if time != "ts" and dice.random() < 0.1:
            other = None
        row = (id_, dice.randint(1, 2), dice.randint(0, 3), ts, other)
        live[table].append(row)
        found.append((table, 1, row))
    return found


def running(folder: Path, mode: str, sql: str, sink: str, time: str = "ts", key: str = "") -> Clocked:
    """The query, with watermarks on both tables."""
    kind = {"ts": "TIMESTAMP", "n": "TIMESTAMP_NTZ", "d": "DATE"}[time]
    columns = f"{{id: BIGINT NOT NULL, k: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL, n: {kind}}}"
    column = "ts" if time == "ts" else "n"
    expression = {"ts": "column: ts", "n": "column: n", "d": "column: n"}[time]
    assert column in expression
    tables = "\n".join(
        f"  {name}: {{topic: {name}, mode: {mode}, columns: {columns}, {key}watermark: {{{expression}, delay: 4s}}}}"
        for name in "ab"
    )
    sinks = f"  result: {{topic: r, {sink}, sql: {json.dumps(sql)}}}"
    return Clocked.of(job_of(folder, f"job: j\ntables:\n{tables}\nsinks:\n{sinks}\n"))


def restart(query: Clocked) -> None:
    """Go on with copies of all that is kept."""
    for kept in query.engine._stores:
        kept.update({name: store.copy() for name, store in kept.items() if isinstance(store, MemoryStore)})


def as_json(row: Row) -> dict[str, Any]:
    """A row as a line of a file has it."""
    other = row[4].isoformat() if row[4] is not None else None
    return dict(zip(("id", "k", "v", "ts", "n"), (*row[:3], row[3].isoformat(), other), strict=True))


def as_rows(query: Clocked) -> Counter[Row]:
    """The result as DuckDB gives it."""

    def value(name: str, each: Any) -> Any:
        return datetime.fromisoformat(each) if name.startswith("t") and each else each

    return Counter({tuple(value(*each) for each in row): count for row, count in query.view.items()})


BOTH = "{b}.{t} BETWEEN {a}.{t} - INTERVAL '5' SECOND AND {a}.{t} + INTERVAL '10' SECOND"
STRICT = "{a}.{t} < {b}.{t} + INTERVAL '5' SECOND AND {b}.{t} - INTERVAL '10' SECOND < {a}.{t}"
BEFORE = "{b}.{t} >= {a}.{t} - INTERVAL '10' SECOND AND {b}.{t} + INTERVAL '5' SECOND <= {a}.{t}"
AFTER = "{b}.{t} BETWEEN {a}.{t} + INTERVAL '5' SECOND AND {a}.{t} + INTERVAL '10' SECOND"
EQUAL = "{b}.{t} = {a}.{t} + INTERVAL '5' SECOND"
FROM = "{b}.{t} >= {a}.{t} - INTERVAL '5' SECOND"
UNTIL = "{a}.{t} + INTERVAL '5' SECOND >= {b}.{t}"

BOUNDS = {
    BOTH: Bounds(-5 * SECOND, 10 * SECOND),
    STRICT: Bounds(-5 * SECOND + MICRO, 10 * SECOND - MICRO),
    BEFORE: Bounds(-10 * SECOND, -5 * SECOND),
    AFTER: Bounds(5 * SECOND, 10 * SECOND),
    EQUAL: Bounds(5 * SECOND, 5 * SECOND),
    FROM: Bounds(-5 * SECOND, None),
    UNTIL: Bounds(None, 5 * SECOND),
}

PAIRS = "SELECT a.id AS l, b.id AS r, a.{t} AS tl, b.{t} AS tr FROM a {join} b ON a.k = b.k AND {on}"
ONE = "SELECT a.id AS l, CAST(NULL AS BIGINT) AS r, a.{t} AS tl, CAST(NULL AS TIMESTAMP) AS tr FROM a WHERE "
FORMS = {
    "inner": PAIRS.replace("{join}", "JOIN"),
    "left": PAIRS.replace("{join}", "LEFT JOIN"),
    "right": PAIRS.replace("{join}", "RIGHT JOIN"),
    "full": PAIRS.replace("{join}", "FULL JOIN"),
    "semi": ONE + "EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND {on})",
    "anti": ONE + "NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.v >= b.v AND {on})",
    "in": ONE + "a.k IN (SELECT b.k FROM b WHERE b.v <= a.v AND {on})",
    "not in": ONE + "a.k NOT IN (SELECT b.k FROM b WHERE {on})",
}
KINDS = {"in": "semi", "not in": "anti"}


def sql_of(form: str, on: str, time: str = "ts") -> str:
    """The query of a form with this condition."""
    column = "ts" if time == "ts" else "n"
    return FORMS[form].format(t=column, on=on.format(a="a", b="b", t=column))


def compare(folder: Path, form: str, on: str, mode: str, emit: str, time: str = "ts", steps: int = 40) -> None:
    """A few random histories, whose results are those of the model after each batch and in the end."""
    bounds, kind, sql = BOUNDS[on], KINDS.get(form, form), sql_of(form, on, time)
    for number in seeds(2):
        seed = f"{form} {on} {mode} {emit} {time} {number}"
        print(f"seed '{seed}'")
        dice = random.Random(seed)
        query = running(folder, mode, sql, f"mode: retract{emit}", time)
        model = Model(bounds, time)
        rest = changes_of(dice, mode, steps, time)
        holds = not emit and bounds.earliest is not None and bounds.latest is not None
        while rest:
            size = dice.choice((1, 2, 5, 11))
            batch, rest = rest[:size], rest[size:]
            query.batch(0, *((table, "+I" if sign > 0 else "-D", as_json(row)) for table, sign, row in batch))
            restart(query)
            model.batch(batch)
            expected = model.query(sql)
            assert as_rows(query) == (model.settled(expected, kind) if holds else expected), f"{seed}: {batch}"
        query.end()
        assert as_rows(query) == model.query(sql), seed


@pytest.mark.parametrize("emit", ["", ", emit: changes"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("on", [BOTH, STRICT, BEFORE, AFTER, EQUAL])
@pytest.mark.parametrize("form", FORMS)
def test_interval_joins_are_sql_over_what_is_not_late(
    tmp_path: Path, form: str, on: str, mode: str, emit: str
) -> None:
    """After every batch, however the changes are cut, restarts in between, and in the end of time."""
    compare(tmp_path, form, on, mode, emit)
