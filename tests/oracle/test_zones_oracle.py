"""Windows of local time around daylight-saving changes, against DuckDB; and windows with offsets."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.answers import answer
from tests.clocked import Clocked, job_of

LOCAL = {
    "CONVERT_TIMEZONE('UTC', 'Europe/Berlin', CAST(ts AS TIMESTAMP_NTZ))": "Europe/Berlin",
    "CONVERT_TIMEZONE('America/New_York', CAST(ts AS TIMESTAMP_NTZ))": "America/New_York",
    "FROM_UTC_TIMESTAMP(ts, 'Europe/Berlin')": "Europe/Berlin",
}
CHANGES = [datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)]
"""Start dates around the daylight-saving changes in Europe and America."""


def query(folder: Path, sql: str, emit: str) -> Clocked:
    """Return the query over rows in order of time."""
    table = "{topic: a, mode: append, columns: {id: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}, watermark: ts}"
    sinks = f"result: {{topic: r, mode: retract, emit: {emit}, sql: {json.dumps(sql)}}}"
    return Clocked.of(job_of(folder, f"job: j\ntables: {{a: {table}}}\nsinks: {{{sinks}}}\n"))


def in_duckdb(sql: str, times: list[datetime]) -> Counter[tuple[Any, ...]]:
    """Return the result of a query over rows with these times."""
    return Counter(answer(sql, {"a": ("id BIGINT, ts TIMESTAMPTZ", list(enumerate(times)))}))


def result(of: Clocked) -> Counter[tuple[Any, ...]]:
    """Return rows with a start and a count, in DuckDB's types."""
    rows = (dict(row) for row in of.view.elements())
    return Counter((datetime.fromisoformat(row["s"]).replace(tzinfo=None), row["n"]) for row in rows)


@pytest.mark.parametrize("begin", CHANGES)
@pytest.mark.parametrize("local", LOCAL)
def test_local_days_are_those_of_the_zone(tmp_path: Path, local: str, begin: datetime) -> None:
    """Local days have 23 or 25 hours at clock changes, and each is final soon after its end."""
    zone = LOCAL[local]
    times = [begin + timedelta(hours=1) * number for number in range(75)]
    sql = f"SELECT window.start AS s, COUNT(*) AS n FROM a GROUP BY window({local}, '1 day')"
    running = query(tmp_path, sql, "final")
    days = in_duckdb(f"SELECT date_trunc('day', ts AT TIME ZONE '{zone}'), COUNT(*) FROM a GROUP BY 1", times)
    seen: set[tuple[Any, ...]] = set()
    for number, ts in enumerate(times):
        running.batch(0, ("a", "+I", {"id": number, "ts": ts.isoformat()}))
        out = set(result(running))
        for day, count in out - seen:
            over = ts - (day + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone))
            assert timedelta() <= over <= timedelta(hours=2, minutes=7), (day, count)
        assert out >= seen, "what is final stays"
        seen = out
        assert running.engine.state["aggregate_1"].rows <= 4, "a few days are open, or have just been closed"
    assert 1 <= len(set(days) - seen) <= 2, "all but the last are out"
    running.end()
    assert result(running) == days


@pytest.mark.parametrize(("size", "offset"), [("1 hour", 15), ("1 hour", -10), ("1 hour", -130), ("1 day", -120)])
@pytest.mark.parametrize("begin", [CHANGES[0], datetime(1969, 12, 31, tzinfo=UTC)])
def test_windows_may_begin_at_an_offset(tmp_path: Path, size: str, offset: int, begin: datetime) -> None:
    """Windows may have an offset, also a negative one and before the epoch; a window is final at its end."""
    times = [begin + timedelta(minutes=31) * number for number in range(60)]
    window = f"window(ts, '{size}', '{size}', '{offset} minutes')"
    running = query(tmp_path, f"SELECT window.start AS s, COUNT(*) AS n FROM a GROUP BY {window}", "final")
    origin = f"TIMESTAMP '1970-01-01 00:00:00' + INTERVAL '{offset} minutes'"
    begins = f"time_bucket(INTERVAL '{size}', ts AT TIME ZONE 'UTC', {origin})"
    windows = in_duckdb(f"SELECT {begins}, COUNT(*) FROM a GROUP BY 1", times)
    length = timedelta(days=1) if size == "1 day" else timedelta(hours=1)
    for number, ts in enumerate(times):
        running.batch(0, ("a", "+I", {"id": number, "ts": ts.isoformat()}))
        over = {row for row in windows if row[0] + length <= ts.replace(tzinfo=None)}
        assert set(result(running)) == over
    running.end()
    assert result(running) == windows
