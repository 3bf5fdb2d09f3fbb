"""MATCH_RECOGNIZE in SQL, from the rows of a table to the result, against SQL:2016's definition.

The random patterns are those of the operator's test, written as SQL. Some rows are late, that is, the watermark had
passed them before their batch; they are dropped. These tests check how the planner translates names, columns, calls,
conditions and measures, and how the engine handles time.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.changelogs import Row
from tests.clocked import Clocked, job_of
from tests.oracle.row_patterns import NAMES, UNIT, Definition, Sought, sought
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = 3
JOB = """
job: patterns
kafka: {{bootstrap.servers: x}}
registry: {{url: "http://x"}}
checkpoint: x
on_error: "null"
dead_letters: {{topic: d}}
tables:
  t:
    topic: t
    mode: append
    columns: {{id: INT NOT NULL, k: STRING, v: INT, ts: TIMESTAMP NOT NULL}}
    watermark: {{column: ts, delay: {delay}ms}}
sinks:
  result:
    topic: result
    mode: append
    sql: {sql}
"""


def _moment(units: int) -> datetime:
    return START + timedelta(microseconds=UNIT * units)


def _line(row: Row) -> tuple[str, str, dict[str, Any]]:
    number, partition, value, time = row
    key = None if partition is None else str(partition)
    return "t", "+I", {"id": number, "k": key, "v": value, "ts": _moment(time or 0).isoformat()}


def _rows(generator: random.Random, mark: int, first: int) -> list[Row]:
    """Return the rows of a batch, most of them not late; `mark` is the watermark in ms from the start."""
    found: list[Row] = []
    for number in range(generator.randint(0, generator.choice([3, 12]))):
        time = max(0, 1000 * mark // UNIT + generator.randint(-4, 16))
        found.append((first + number, generator.choice([None, 1, 2]), generator.randrange(6), time))
    return found


@pytest.mark.parametrize("number", seeds(60))
def test_matches_of_a_table_are_those_of_the_definition(number: int, tmp_path: Path) -> None:
    """After every batch the result equals the definition over the rows that were not late."""
    [generator] = drawn("match in SQL", [number])
    of = sought(generator)
    while len(of.variables) < len(NAMES):
        of = sought(generator)
    print(of)
    query = Clocked.of(job_of(tmp_path, JOB.format(sql=of.sql.replace(": ", ":"), delay=DELAY)))
    accepted: dict[int | None, list[Row]] = defaultdict(list)
    mark, reached, first = 0, -(1 << 60), 0
    for _ in range(generator.randint(1, 7)):
        rows = _rows(generator, mark, first)
        first += len(rows)
        for row in rows:
            if -(-(UNIT * (row[3] or 0) + 1) // 1000) > reached:
                accepted[row[1]].append(row)
        reached = max([reached, *(UNIT * (row[3] or 0) // 1000 - DELAY for row in rows)])
        mark = max(reached, 0) + generator.choice([0, 2, 6])
        query.batch(0, *map(_line, rows))
        assert query.view == _expected(of, accepted, 1000 * reached - 1)
    query.end()
    assert query.view == _expected(of, accepted, None)


def _expected(of: Sought, accepted: dict[int | None, list[Row]], passed: int | None) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for own in accepted.values():
        rows = [row for row in own if passed is None or UNIT * (row[3] or 0) <= passed]
        rows.sort(key=lambda row: (row[3], row[0]))
        definition = Definition(of, rows, passed).run()
        found += Counter(_named(of, *each) for each in definition.outputs())
    return found


def _named(of: Sought, row: Row, called: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Return a row of the definition with the column names of the SQL."""
    number, partition, value, time = row
    key = ("k", None if partition is None else str(partition))
    measures = [(f"m{place}", each) for place, each in enumerate(called)]
    if not of.all_rows:
        return (key, *measures)
    moment = _moment(time or 0)
    unit = "microseconds" if moment.microsecond % 1000 else "milliseconds" if moment.microsecond else "seconds"
    shown = moment.isoformat(timespec=unit).replace("+00:00", "Z")
    return (key, ("ts", shown), *measures, ("id", number), ("v", value))


FALL = """
MATCH_RECOGNIZE (
      PARTITION BY k ORDER BY ts MEASURES FIRST(ts) AS a, SUM(B.v) AS s, COUNT(*) AS n
      AFTER MATCH SKIP TO LAST B PATTERN (A B+ C?) DEFINE B AS B.v <= LAST(v, 1), C AS C.v > B.v + 3)"""
CHANGING = {
    "windows": """
      SELECT k, window_time AS ts, SUM(v) AS v FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' MILLISECOND))
      GROUP BY k, window_start, window_end, window_time""",
    "sessions": """
      SELECT k, window_end AS ts, SUM(v) AS v FROM
      TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' MILLISECOND))
      GROUP BY k, window_start, window_end""",
    "times": "SELECT k, ts, SUM(v) AS v FROM t GROUP BY k, ts",
    "best": """
      SELECT k, ts, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, ts ORDER BY v DESC) AS n FROM t)
      WHERE n = 1""",
}


@pytest.mark.parametrize("name", CHANGING)
@pytest.mark.parametrize("number", seeds(2))
def test_rows_that_change_are_matched_as_they_are_in_the_end(name: str, number: int, tmp_path: Path) -> None:
    """The result is the matches over the final rows; after each batch some are emitted, at the end of the input all."""
    generator = random.Random(f"final {name} {number}")
    matched, final, after = (
        Clocked.of(job_of(_folder(tmp_path, place), JOB.format(sql=" ".join(sql.split()), delay=DELAY)))
        for place, sql in enumerate(
            (f"SELECT * FROM ({CHANGING[name]}) {FALL}", CHANGING[name], f"SELECT * FROM t {FALL}")
        )
    )
    mark, first, reached = 0, 0, 0
    views = []
    for _ in range(generator.randint(2, 9)):
        rows = _rows(generator, mark, first)
        first += len(rows)
        reached = max([reached, *(UNIT * (row[3] or 0) // 1000 - DELAY for row in rows)])
        mark = reached + generator.choice([0, 2, 6])
        for query in (matched, final):
            query.batch(0, *map(_line, rows))
        views.append(matched.view)
    matched.end()
    final.end()
    for place, row in enumerate(sorted(final.result, key=lambda each: datetime.fromisoformat(each["ts"]))):
        after.batch(0, ("t", "+I", {"id": place} | row))
    after.end()
    assert matched.view == after.view
    assert all(view <= matched.view for view in views)


def _folder(under: Path, place: int) -> Path:
    (found := under / str(place)).mkdir()
    return found


def test_the_patterns_of_a_run_find_something() -> None:
    """Most of the random patterns match some random rows, so that these tests are not vacuous."""
    found = [_matches(number) for number in range(40)]
    assert sum(each > 0 for each in found) > 15


def _matches(number: int) -> int:
    generator = random.Random(f"found, {number}")
    of = sought(generator)
    rows: list[Row] = [(each, 1, generator.randrange(6), each) for each in range(30)]
    return len(Definition(of, rows, None).run().matches)
