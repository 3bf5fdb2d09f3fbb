"""Interval joins under watermarks against DuckDB over the rows that a model of time accepts.

The model knows how far apart the times of a pair may be. A row is late if the watermark before its batch has passed the
last time at which the row could match a row that is on time. All other changes are accepted, insertions and retractions
alike. The result is SQL over the changes accepted so far. If null-padded rows are delayed, the result lacks those that
may still be retracted.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.physical.tree import walk
from tests.answers import answer
from tests.clocked import Clocked
from tests.oracle.cuts import Change, Row, as_json, as_lines, as_rows, cut, query_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=4)
SECOND, MICRO, DAY = timedelta(seconds=1), timedelta(microseconds=1), timedelta(days=1)
STRETCH = 21_600
"""Factor by which times are stretched for DATE columns: a second becomes six hours."""
NEVER = timedelta(days=40_000)

NAMES = ("id", "k", "v", "ts", "n")
SIZES = (1, 2, 3, 8)


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest difference between the right and the left time of a pair; None for no bound.

    `slacks`: how far the times of left and right rows may be behind the watermark.
    """

    earliest: timedelta | None
    latest: timedelta | None
    slacks: tuple[timedelta, timedelta] = (timedelta(), timedelta())

    def late(self) -> tuple[timedelta, timedelta]:
        """Return how far the watermark must pass the times of left and right rows for them to be late."""
        left, right = self.slacks
        of_left = left if self.latest is None else max(left, self.latest + right)
        of_right = right if self.earliest is None else max(right, left - self.earliest)
        return of_left, of_right

    def settled(self) -> tuple[timedelta, timedelta]:
        """Return how far the watermark must pass these times until matches can no longer change."""
        left, right = self.late()
        of_left = NEVER if self.latest is None else max(left, self.latest + right)
        of_right = NEVER if self.earliest is None else max(right, left - self.earliest)
        return of_left, of_right


@dataclass
class Model:
    """The accepted rows of each table and the progress of time."""

    bounds: Bounds
    time: str = "ts"
    marks: dict[str, datetime] = field(default_factory=dict)
    accepted: dict[str, Counter[Row]] = field(default_factory=lambda: {"a": Counter(), "b": Counter()})

    def watermark(self) -> datetime:
        """Return the watermark over both tables, in whole milliseconds."""
        mark = min(self.marks.get(name, datetime.min.replace(tzinfo=UTC)) for name in "ab")
        return mark.replace(microsecond=mark.microsecond // 1000 * 1000)

    def moment(self, row: Row) -> datetime | None:
        """Return the time by which a row is joined."""
        found = row[4] if self.time == "n" else _utc(row[3].date()) if self.time == "d" else row[3]
        return None if found is None else _utc(found)

    def batch(self, changes: Sequence[Change]) -> None:
        """Apply a batch; the watermark that it advances takes effect after the batch."""
        before = self.watermark()
        for table, sign, row in changes:
            time = self.moment(row)
            if time is None or before <= time + self.bounds.late()[table == "b"]:
                self.accepted[table][row] += sign
        for table, _, row in changes:
            if (time := row[4] if self.time == "n" else row[3]) is not None:
                mark = _utc(time) - (STRETCH if self.time == "d" else 1) * DELAY
                self.marks[table] = max(self.marks.get(table, mark), mark)

    def query(self, sql: str) -> Counter[Row]:
        """Return the query's result over the accepted rows."""
        columns = "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, n TIMESTAMP"
        return Counter(answer(sql, {name: (columns, list(rows.elements())) for name, rows in self.accepted.items()}))

    def settled(self, result: Counter[Row], kind: str) -> Counter[Row]:
        """Return the result without null-padded rows that may still be retracted.

        Rows are (left id, right id, left time, right time).
        """
        now, (of_left, of_right) = self.watermark(), self.bounds.settled()

        def waits(row: Row) -> bool:
            left, right = row[2:]
            if kind in ("left", "full", "anti") and right is None and left is not None:
                return bool(now <= _utc(left) + of_left)
            return kind in ("right", "full") and left is None and right is not None and now <= _utc(right) + of_right

        return Counter({row: count for row, count in result.items() if not waits(row)})


def _utc(time: date) -> datetime:
    if not isinstance(time, datetime):
        return datetime(time.year, time.month, time.day, tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def changes_of(dice: random.Random, mode: str, count: int, time: str = "ts") -> list[Change]:
    """Return changes of both tables, out of order by seconds, often exactly at the edge of another row's interval."""
    now, found = START, []
    live: dict[str, list[Row]] = {"a": [], "b": []}
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 0, 0, 0, 1, 1, 2, 5)))
        table = dice.choice("abb")
        if mode == "retract" and live[table] and dice.random() < 0.35:
            row = live[table].pop(-dice.randint(1, min(12, len(live[table]))))
            found.append((table, -1, row))
            continue
        # Whole seconds, so that the watermark often equals the exact time at which the state of a row changes.
        ts = now - timedelta(seconds=dice.choice((0, 0, 0, 4, 5, 9, 9, 14, 14, 19, 19, 24)))
        if live["a"] and dice.random() < 0.4:
            edge = dice.choice((live["a" if table == "b" else "b"] or live["a"])[-12:])[3]
            ts = edge + dice.choice((-10, -5, -5, 0, 5, 10, 10)) * SECOND
        ts += dice.choice((-1000, -1, 0, 0, 0, 0, 0, 0, 1, 1000)) * MICRO
        other = ts.replace(tzinfo=None) if time == "n" and dice.random() < 0.9 else None
        row = (id_, dice.choice((1, 1, 1, 2)), dice.randint(0, 3), ts, other)
        live[table].append(row)
        found.append((table, 1, row))
    if time != "d":
        return found
    return [(table, sign, (*row[:3], START + STRETCH * (row[3] - START), None)) for table, sign, row in found]


def running(folder: Path, mode: str, sql: str, sink: str, time: str = "ts") -> Clocked:
    """Return the query with watermarks on both tables."""
    columns = ", ".join(f"{name}: BIGINT NOT NULL" for name in ("id", "k", "v"))
    column, delay = "n" if time == "n" else "ts", "1d" if time == "d" else "4s"
    table = (
        f"mode: {mode}, columns: {{{columns}, ts: TIMESTAMP NOT NULL, n: TIMESTAMP_NTZ}}, "
        f"watermark: {{column: {column}, delay: {delay}}}"
    )
    return query_of(folder, sql, sink, {"a": table, "b": table})


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
ONES = ("semi", "anti", "in", "not in")


def sql_of(form: str, on: str, time: str = "ts") -> str:
    """Return the query of this form with this condition."""
    if time != "d":
        return FORMS[form].format(t=time, on=on.format(a="a", b="b", t=time))
    sql = FORMS[form].format(t="d", on=on.replace("SECOND", "DAY").format(a="a", b="b", t="d"))
    for name in "ab":
        dated = f"(SELECT id, k, v, CAST(ts AS DATE) AS d FROM {name}) {name}"
        sql = re.sub(rf"\b(FROM|JOIN) {name}\b", rf"\1 {dated}", sql)
    return sql


def compare(folder: Path, form: str, on: str, mode: str, emit: str, *, time: str = "ts") -> None:
    """Compare random histories with the model, after each batch and at the end of the input."""
    bounds, kind, sql = BOUNDS[on], KINDS.get(form, form), sql_of(form, on, time)
    if time == "d":
        assert bounds.earliest is not None
        assert bounds.latest is not None
        bounds = Bounds(24 * 3600 * bounds.earliest, 24 * 3600 * bounds.latest, (DAY, DAY))
    holds = not emit and bounds.earliest is not None and bounds.latest is not None
    for dice in drawn(f"{form} {on} {mode} {emit} {time}", seeds(1)):
        query, model = running(folder, mode, sql, f"mode: retract{emit}", time), Model(bounds, time)
        for batch in cut(dice, changes_of(dice, mode, 60, time), SIZES):
            query.batch(0, *as_lines(batch, NAMES))
            query.restart()
            model.batch(batch)
            expected = model.query(sql)
            assert as_rows(query) == (model.settled(expected, kind) if holds else expected), batch
        query.end()
        assert as_rows(query) == model.query(sql)


@pytest.mark.parametrize("emit", ["", ", emit: changes"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("form", FORMS)
def test_interval_joins_are_sql_over_what_is_not_late(tmp_path: Path, form: str, mode: str, emit: str) -> None:
    """After every batch and at the end, with restarts, the result equals SQL over the rows that were not late."""
    compare(tmp_path, form, BOTH, mode, emit)


@pytest.mark.parametrize("on", [STRICT, BEFORE, AFTER, EQUAL])
@pytest.mark.parametrize("form", FORMS)
def test_intervals_may_lie_before_or_after_and_be_written_in_any_way(tmp_path: Path, form: str, on: str) -> None:
    """Bounds may be exclusive, both before or both after the other time, or equal to each other."""
    compare(tmp_path, form, on, "retract", "")


def counted(form: str, on: str) -> bool:
    """Return whether the join counts matches of rows that can always get more matches."""
    of_left, of_right = form in ("left", "full", *ONES), form in ("right", "full")
    return (of_left and BOUNDS[on].latest is None) or (of_right and BOUNDS[on].earliest is None)


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("on", [FROM, UNTIL])
@pytest.mark.parametrize("form", FORMS)
def test_one_bound_lets_go_of_what_it_can(tmp_path: Path, form: str, on: str, mode: str) -> None:
    """With one bound, null-padded rows are emitted at once; if matches are counted indefinitely, no row is late."""
    if counted(form, on):
        query = running(tmp_path, mode, sql_of(form, on), "mode: retract")
        join = next(node for node in walk(query.sink) if isinstance(node, PhysicalJoin))
        assert join.closings == (None, None)
    else:
        compare(tmp_path, form, on, mode, "")


@pytest.mark.parametrize("time", ["n", "d"])
@pytest.mark.parametrize("form", FORMS)
def test_times_may_be_dates_or_local_and_null(tmp_path: Path, form: str, time: str) -> None:
    """A row without a time matches nothing and is null-padded at once; a DATE counts as its midnight."""
    compare(tmp_path, form, BOTH, "retract", "", time=time)


def at(second: float, id_: int) -> Row:
    """Return a row whose time is so many seconds after the start."""
    return (id_, 1, 0, START + second * SECOND, None)


def told(query: Clocked, *changes: tuple[str, str, Row]) -> list[tuple[Any, ...]]:
    """Run a batch and return the ids of the result, sorted."""
    query.batch(0, *((table, op, as_json(row, NAMES)) for table, op, row in changes))
    rows = as_rows(query)
    assert all(count > 0 for count in rows.values()), "what is not there is not taken back"
    return sorted(((row[0], row[1]) for row in rows.elements()), key=str)


@pytest.mark.parametrize("form", ["left", "semi", "anti"])
def test_a_match_is_remembered_while_others_come_and_go(tmp_path: Path, form: str) -> None:
    """Matches stay counted while a later match is inserted and retracted, even long after the first match arrived."""
    query = running(tmp_path, "retract", sql_of(form, BOTH), "mode: retract, emit: changes")
    shown: dict[str, list[tuple[int, int | None]]] = {"left": [(1, 2)], "semi": [(1, None)], "anti": []}
    both: dict[str, list[tuple[int, int | None]]] = {"left": [(1, 2), (1, 4)], "semi": [(1, None)], "anti": []}
    assert told(query, ("a", "+I", at(0, 1)), ("b", "+I", at(-5, 2))) == shown[form]
    # The watermark is at 13 s. Row 1 is late, but is kept until 15 s. No left row that is on time can match row 2 any
    # more.
    far = [("a", "+I", at(17, 9)), ("b", "+I", at(17, 3)), ("a", "-D", at(17, 9)), ("b", "-D", at(17, 3))]
    assert told(query, *far) == shown[form]
    assert told(query, ("b", "+I", at(10, 4))) == both[form]
    assert told(query, ("b", "-D", at(10, 4))) == shown[form]


def test_a_pad_comes_once_when_none_of_its_matches_can_come(tmp_path: Path) -> None:
    """A null-padded row is emitted once, 1 ms after its last possible match; a match that arrives later is late."""
    query = running(tmp_path, "append", sql_of("left", BOTH), "mode: append")
    assert told(query, ("a", "+I", at(0, 1)), ("b", "+I", at(0, 2)), ("a", "+I", at(7, 3))) == [(1, 2)]
    assert told(query, ("a", "+I", at(27, 4)), ("b", "+I", at(26, 5))) == [(1, 2), (4, 5)]
    assert told(query, ("b", "+I", at(26.001, 6))) == [(1, 2), (3, None), (4, 5), (4, 6)]
    assert told(query, ("b", "+I", at(17, 7))) == [(1, 2), (3, None), (4, 5), (4, 6)]


@pytest.mark.sampled(0)
def test_a_long_stream_keeps_what_an_interval_holds(tmp_path: Path) -> None:
    """State does not grow with the number of rows, for every kind of join."""
    for form in ("inner", "full", "anti"):
        query = running(tmp_path, "append", sql_of(form, BOTH), "mode: retract")
        kept = []
        for step in range(60):
            rows = [at(3 * step + place / 4, 8 * step + place) for place in range(8)]
            query.batch(0, *((name, "+I", as_json(row, NAMES)) for row in rows for name in "ab"))
            kept.append(sum(each.rows for each in query.engine.state.values()))
        assert max(kept[40:]) < 1.5 * max(kept[10:25]), form


@pytest.mark.parametrize("mode", ["append", "retract"])
def test_windows_of_an_interval_join_lose_nothing(tmp_path: Path, mode: str) -> None:
    """A window over an interval join closes after its last pair or null-padded row, and counts every row once."""
    inner = "SELECT a.ts, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND " + BOTH.format(a="a", b="b", t="ts")
    windows = f"TABLE(TUMBLE(({inner}), DESCRIPTOR(ts), INTERVAL '5' SECOND))"
    sql = f"SELECT window_end AS t, COUNT(*) AS n, COUNT(other) AS m FROM {windows} GROUP BY window_start, window_end"
    oracle = (
        "SELECT to_timestamp(5 * (floor(epoch(ts) / 5) + 1)) AS t, COUNT(*) AS n, COUNT(other) AS m "
        f"FROM ({inner}) GROUP BY t"
    )
    for dice in drawn(f"windows {mode}", seeds(1)):
        query, model = running(tmp_path, mode, sql, "mode: append"), Model(BOUNDS[BOTH])
        for batch in cut(dice, changes_of(dice, mode, 80), SIZES):
            query.batch(0, *as_lines(batch, NAMES))
            query.restart()
            model.batch(batch)
            now = model.watermark()
            over = {row: 1 for row in model.query(oracle) if now >= _utc(row[0]) + 15 * SECOND}
            assert as_rows(query) == Counter(over), batch
        query.end()
        assert as_rows(query) == model.query(oracle)
