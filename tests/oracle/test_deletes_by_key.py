"""Deletes that carry only a key, for rows that are evicted by their time: the result equals SQL over the current rows.

The watermark is far behind, so that no row is late. Half of the deletes carry their row. That row is ignored, since
deletes of an upsert topic are by key.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.answers import answer
from tests.clocked import Clocked, Line, job_of
from tests.seeds import drawn, seeds

JOB = """
job: shop
tables:
  a:
    mode: upsert
    primary_key: id
    watermark: {{column: ts, delay: 30d}}
    columns: {{id: BIGINT NOT NULL, ts: "TIMESTAMP(6){null}"}}
  b:
    mode: upsert
    primary_key: id
    watermark: {{column: since, delay: 30d}}
    columns: {{id: BIGINT NOT NULL, since: "TIMESTAMP(6){null}"}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""
QUERIES = {
    "interval": "JOIN b ON a.id = b.id AND a.ts BETWEEN b.since - INTERVAL '3' HOUR AND b.since + INTERVAL '3' HOUR",
    "bound": "JOIN b ON a.id = b.id AND a.ts < b.since",
    "no key": "JOIN b ON a.ts < b.since",
    "outer without a key": "RIGHT JOIN b ON a.ts < b.since",
    "filtered": "JOIN b ON a.id = b.id AND a.ts < b.since WHERE MINUTE(a.ts) > 20",
}


@pytest.mark.parametrize("null", ["", " NOT NULL"], ids=["may be NULL", "not NULL"])
@pytest.mark.parametrize("name", QUERIES)
def test_they_take_back_what_is_there(tmp_path: Path, name: str, null: str) -> None:
    """A delete by key retracts the stored row, even if the time is NOT NULL and the delete has a placeholder."""
    sql = f"SELECT a.id AS id, b.id AS other FROM a {QUERIES[name]}"
    for dice in drawn(f"{name}{null}", seeds(3)):
        query = Clocked.of(job_of(tmp_path, JOB.format(sql=sql, null=null)))
        there: dict[str, dict[int, datetime]] = {"a": {}, "b": {}}
        for _ in range(15):
            query.batch(0, *(change(dice, there) for _ in range(dice.choice((1, 1, 4)))))
            query.restart()
            tables = {
                table: (f"id BIGINT, {time} TIMESTAMPTZ", list(there[table].items()))
                for table, time in (("a", "ts"), ("b", "since"))
            }
            found = Counter((row["id"], row["other"]) for row in query.result)
            assert found == Counter(answer(sql, tables)), there


def change(dice: random.Random, there: dict[str, dict[int, datetime]]) -> Line:
    """Return a random insert, update or delete, and apply it to `there`."""
    table, key = dice.choice("ab"), dice.randrange(4)
    time = "ts" if table == "a" else "since"
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=dice.randrange(480))
    if key in there[table] and dice.random() < 0.5:
        row: dict[str, Any] = {"id": key, time: there[table].pop(key).isoformat()}
        return table, "-D", row if dice.random() < 0.5 else {"id": key}
    there[table][key] = at
    return table, "+U", {"id": key, time: at.isoformat()}
