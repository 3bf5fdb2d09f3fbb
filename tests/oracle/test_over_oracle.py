"""OVER in SQL against DuckDB: after every batch the result equals the same query over the current rows.

Rows arrive in any order and may be retracted. Some values and times are NULL, and many rows share a time. If the result
depends on the order of rows with equal times, DuckDB sorts by the arrival number last.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.answers import answer
from tests.oracle.cuts import Change, Row, as_lines, as_rows, cut, query_of
from tests.seeds import drawn, seeds

START = datetime(2024, 1, 1, tzinfo=UTC)
BY = "PARTITION BY k ORDER BY ts NULLS FIRST"
SINGLE = f"OVER ({BY}{{arrival}})"
ROWS = f"OVER ({BY}{{arrival}} ROWS"
PEERS = f"OVER ({BY})"
RANGE = f"OVER ({BY} RANGE"
COLUMNS = ("id", "k", "v", "d", "m", "ts", "t")

QUERIES = {
    "running": f"SELECT id, SUM(v) {PEERS} AS s, COUNT(*) {PEERS} AS n, COUNT(v) {PEERS} AS c, "
    f"MIN(v) {PEERS} AS lo, MAX(v) {PEERS} AS hi, AVG(v) {PEERS} AS mean FROM a",
    "running rows": f"SELECT id, SUM(v) {ROWS} UNBOUNDED PRECEDING) AS s, MIN(v) "
    f"{ROWS} BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS lo, COUNT(*) {ROWS} "
    "BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING) AS n FROM a",
    "doubles and decimals": f"SELECT id, SUM(d) {PEERS} AS s, AVG(d) {ROWS} BETWEEN 2 PRECEDING "
    f"AND CURRENT ROW) AS mean, CAST(SUM(m) {PEERS} AS STRING) AS cents, MAX(d) {PEERS} AS hi FROM a",
    "neighbours": f"SELECT id, LAG(v) {SINGLE} AS before, LAG(v, 2, -1) {SINGLE} AS second, LEAD(v, 1, id) {SINGLE} "
    f"AS behind, LEAD(ts) {SINGLE} AS ts_next, LAG(t) {SINGLE} AS text_before FROM a",
    "picked": f"SELECT id, FIRST_VALUE(v) {SINGLE} AS first, LAST_VALUE(v) {ROWS} BETWEEN UNBOUNDED "
    f"PRECEDING AND CURRENT ROW) AS last, NTH_VALUE(id, 2) {ROWS} UNBOUNDED PRECEDING) AS second, "
    f"FIRST_VALUE(t) {ROWS} BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS text_first, NTH_VALUE(v, 3) {ROWS} "
    "BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS third FROM a",
    "frames of rows": f"SELECT id, SUM(v) {ROWS} BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s, "
    f"MIN(v) {ROWS} 3 PRECEDING) AS lo, MAX(v) {ROWS} BETWEEN 3 PRECEDING AND "
    f"1 PRECEDING) AS hi, COUNT(*) {ROWS} BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS n FROM a",
    "frames of time": f"SELECT id, SUM(v) {RANGE} BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS s, "
    f"COUNT(*) {RANGE} BETWEEN INTERVAL '1' SECOND PRECEDING AND INTERVAL '3' SECOND FOLLOWING) AS n, "
    f"MIN(v) {RANGE} BETWEEN INTERVAL '4' SECOND PRECEDING AND INTERVAL '1' SECOND PRECEDING) AS lo FROM a",
    "frames of time down": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts DESC NULLS LAST RANGE BETWEEN INTERVAL "
    "'2' SECOND PRECEDING AND INTERVAL '1' SECOND FOLLOWING) AS s FROM a",
    "frames of numbers": "SELECT id, COUNT(*) OVER (ORDER BY v NULLS LAST RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) "
    "AS n FROM a",
    "frames of decimals": "SELECT id, COUNT(*) OVER (ORDER BY m NULLS LAST RANGE BETWEEN 1.75 PRECEDING AND 20 "
    "FOLLOWING) AS n, SUM(v) OVER (PARTITION BY k ORDER BY m DESC NULLS FIRST RANGE 0.5 PRECEDING) AS s FROM a",
    "frames of doubles": "SELECT id, COUNT(*) OVER (ORDER BY d NULLS LAST RANGE BETWEEN 1.25 PRECEDING AND 0.5 "
    "FOLLOWING) AS n, SUM(v) OVER (PARTITION BY k ORDER BY d DESC NULLS LAST RANGE BETWEEN 6 PRECEDING AND 0.1 "
    "PRECEDING) AS s FROM a",
    "fractions of numbers": "SELECT id, SUM(v) OVER (ORDER BY v NULLS LAST RANGE BETWEEN 1.5 PRECEDING AND 0.5 "
    "FOLLOWING) AS n FROM a",
    "to the end": f"SELECT id, SUM(v) {RANGE} BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s, LAST_VALUE(v) "
    f"{ROWS} BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS last FROM a",
    "two orders": f"SELECT id, SUM(v) {PEERS} AS s, SUM(v) OVER (PARTITION BY k ORDER BY v DESC NULLS LAST) AS t, "
    "COUNT(*) OVER (PARTITION BY v ORDER BY id) AS n FROM a",
    "filtered": f"SELECT id, COUNT(*) FILTER (WHERE v > 4) {PEERS} AS n, SUM(v) FILTER (WHERE d > 1) {PEERS} AS "
    "s FROM a",
    "named": f"SELECT id, SUM(v) OVER w AS s, MAX(v + 1) OVER w AS hi FROM a WINDOW w AS ({BY})",
    "of groups": "SELECT k, v, SUM(COUNT(*)) OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS s FROM a GROUP BY k, v",
    "below": f"SELECT k, MAX(s) AS hi, COUNT(*) AS n FROM (SELECT k, SUM(v) {PEERS} AS s FROM a) GROUP BY k",
    "filtered by": f"SELECT id, s FROM (SELECT id, k, SUM(v) {PEERS} AS s FROM a) WHERE s > 8 AND k > 1",
    "beside the whole": f"SELECT id, SUM(v) {PEERS} AS s, SUM(v) OVER (PARTITION BY k) AS whole FROM a",
    "arrival": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY {proctime}) AS s, LAG(v) OVER (PARTITION BY k ORDER BY "
    "{proctime}) AS before FROM a",
}


def changes_of(dice: random.Random, mode: str, count: int) -> list[Change]:
    """Return changes of rows, mostly in order of time; in mode retract about a third are retractions."""
    now, live, found = START, list[Row](), list[Change]()
    for id_ in range(count):
        if mode == "retract" and live and dice.random() < 0.35:
            found.append(("a", -1, live.pop(dice.randrange(len(live)))))
            continue
        now += timedelta(seconds=dice.choice((0, 0, 1, 2)))
        ts = now - timedelta(seconds=dice.choice((0, 0, 0, 1, 3, 8)))
        row = (
            id_,
            dice.choice((1, 1, 2, 3, None)),
            dice.choice((*range(10), None)),
            dice.choice((0.25, 1.5, -3.0, 7.25, None)),
            dice.choice(("1.25", "-0.50", "19.99", None)),
            dice.choice((ts, ts, ts, ts, None)),
            dice.choice(("a", "bc", "", None)),
        )
        live.append(row)
        found.append(("a", 1, row))
    return found


def expected(sql: str, rows: list[tuple[int, Row]]) -> list[Row]:
    """Return DuckDB's result over the rows with their arrival numbers."""
    columns = "id BIGINT, k BIGINT, v BIGINT, d DOUBLE, m DECIMAL(10,2), ts TIMESTAMPTZ, t VARCHAR, arrival BIGINT"
    there = [(*row[:4], None if row[4] is None else Decimal(row[4]), *row[5:], at) for at, row in rows]
    return answer(sql, {"a": (columns, there)})


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("name", QUERIES)
def test_results_are_sql_over_the_rows_that_are_there(tmp_path: Path, name: str, mode: str) -> None:
    """After every batch of any size, with restarts, the result equals DuckDB's over the current rows."""
    columns = "{id: BIGINT NOT NULL, k: BIGINT, v: BIGINT, d: DOUBLE, m: 'DECIMAL(10,2)', ts: TIMESTAMP, t: STRING}"
    sql = QUERIES[name].format(arrival=", arrival", proctime="arrival")
    for dice in drawn(f"{name} {mode}", seeds()):
        own = QUERIES[name].format(arrival="", proctime="PROCTIME()")
        query = query_of(tmp_path, own, "mode: retract", {"a": f"mode: {mode}, columns: {columns}"})
        there, arrival = list[tuple[int, Row]](), 0
        for batch in cut(dice, changes_of(dice, mode, 40), (1, 4, 9, 15)):
            query.batch(0, *as_lines(batch, COLUMNS))
            query.restart()
            for _, sign, row in batch:
                arrival += 1
                if sign > 0:
                    there.append((arrival, row))
                else:
                    there = [each for each in there if each[1] != row]
            assert as_rows(query) == Counter(expected(sql, there)), batch
