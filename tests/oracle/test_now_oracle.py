"""Conditions on NOW() under a moving clock, against DuckDB over the current rows with the time as a literal.

A batch may have no rows and only advance the clock. A row is in the result from the first batch at whose time its
condition is true.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.answers import answer
from tests.clocked import Clocked, job_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, 23, 59, 30, tzinfo=UTC)
KEYS = {"append": "", "retract": ", exact: true", "upsert": ", primary_key: id"}

QUERIES = [
    "SELECT id FROM a WHERE ts > NOW() - INTERVAL '20' SECOND",
    "SELECT id, v FROM a WHERE NOW() - INTERVAL '20' SECOND <= ts AND v > 3",
    "SELECT id FROM a WHERE ts <= NOW()",
    "SELECT id FROM a WHERE ts + INTERVAL '5' SECOND < CURRENT_TIMESTAMP",
    "SELECT id FROM a WHERE NOW() BETWEEN ts AND ts + INTERVAL '15' SECOND",
    "SELECT id FROM a WHERE ts > NOW() - INTERVAL '30' SECOND AND other > NOW() AND ts <= NOW() AND v <> 4",
    "SELECT id FROM a WHERE CAST(ts AS DATE) >= CURRENT_DATE",
    "SELECT id FROM a WHERE other < NOW() AND CAST(ts AS DATE) < CURRENT_DATE()",
    "SELECT v, COUNT(*) AS n, MAX(id) AS last FROM a WHERE ts >= NOW() - INTERVAL '10' SECOND GROUP BY v",
    "SELECT x.id, y.id AS other FROM a x JOIN a y ON x.v = y.v WHERE x.ts > NOW() - INTERVAL '9' SECOND",
    "SELECT x.id, y.id AS other FROM a x JOIN a y ON x.v = y.v AND COALESCE(x.other, y.ts) > NOW()",
    "SELECT x.id, y.id AS other FROM a x LEFT JOIN a y ON x.v = y.v AND y.ts <= NOW() - INTERVAL '3' SECOND",
    "SELECT v FROM (SELECT v, MAX(ts) AS last FROM a GROUP BY v) WHERE last > NOW() - INTERVAL '9' SECOND",
    "SELECT id FROM a WHERE id NOT IN (SELECT id FROM a WHERE ts < NOW())",
]


@pytest.mark.parametrize("mode", KEYS)
@pytest.mark.parametrize("sql", QUERIES)
def test_rows_come_and_go_with_the_clock(tmp_path: Path, sql: str, mode: str) -> None:
    """After every batch the result equals the SQL with the batch's time in place of NOW()."""
    columns = "{id: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL, other: TIMESTAMP}"
    table = f"  a: {{topic: a, mode: {mode}, columns: {columns}{KEYS[mode]}}}"
    sink = f"  result: {{topic: r, mode: retract, sql: {json.dumps(sql)}}}"
    for dice in drawn(f"{sql} {mode}", seeds()):
        query = Clocked.of(job_of(tmp_path, f"job: j\ntables:\n{table}\nsinks:\n{sink}\n"))
        now, live, count = START, dict[int, tuple[Any, ...]](), 0
        for _ in range(14):
            now += timedelta(seconds=dice.choice((0, 1, 4, 11)), milliseconds=dice.choice((0, 0, 500)))
            lines = []
            for _ in range(dice.choice((0, 1, 3))):
                key = dice.choice(sorted(live)) if live and mode != "append" and dice.random() < 0.4 else None
                if key is not None:
                    lines.append(("a", "-D", shown(live.pop(key))))
                if key is None or mode == "upsert":
                    count += key is None
                    row = (count if key is None else key, dice.randint(2, 5), moment(dice, now), moment(dice, now))
                    if dice.random() < 0.1:
                        row = (*row[:3], None)
                    live[row[0]] = row
                    lines.append(("a", "+I", shown(row)))
            query.batch(round(now.timestamp() * 1000), *lines)
            found = Counter(tuple(value for _, value in row) for row in query.view.elements())
            assert found == expected(sql, list(live.values()), now), now


def moment(dice: random.Random, now: datetime) -> datetime:
    """Return a time around another one, often equal to it."""
    return now + timedelta(seconds=dice.choice((0, 0, -20, -9, -5, 3, 12)))


def shown(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return a row in the form of a line of a JSON file."""
    times = (None if each is None else each.isoformat() for each in row[2:])
    return dict(zip(("id", "v", "ts", "other"), (*row[:2], *times), strict=True))


def expected(sql: str, rows: list[tuple[Any, ...]], now: datetime) -> Counter[tuple[Any, ...]]:
    """Return the query's result over these rows at this time."""
    for word in ("NOW()", "CURRENT_TIMESTAMP"):
        sql = sql.replace(word, f"TIMESTAMPTZ '{now.isoformat()}'")
    sql = sql.replace("CURRENT_DATE()", "CURRENT_DATE").replace("CURRENT_DATE", f"DATE '{now.date()}'")
    return Counter(answer(sql, {"a": ("id BIGINT, v BIGINT, ts TIMESTAMPTZ, other TIMESTAMPTZ", rows)}))
