"""GROUP BY any columns of a window in any order, against windows computed in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest

from tests.trying import folded, inserts

Window = tuple[datetime, datetime]

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
HALF, HOUR = timedelta(minutes=30), timedelta(hours=1)
TIMES = [BEGINNING + timedelta(minutes=minute) for minute in (5, 10, 40, 65, 95, 100, 310)]
TABLE = {
    "mode": "append",
    "columns": {"id": "INT", "ts": "TIMESTAMP NOT NULL"},
    "watermark": {"column": "ts", "delay": "10m"},
}


def _tumble(at: datetime) -> list[Window]:
    start = BEGINNING + (at - BEGINNING) // HOUR * HOUR
    return [(start, start + HOUR)]


def _hop(at: datetime) -> list[Window]:
    last = BEGINNING + (at - BEGINNING) // HALF * HALF
    return [(last - HALF, last + HALF), (last, last + HOUR)]


def _cumulate(at: datetime) -> list[Window]:
    ((start, end),) = _tumble(at)
    return [(start, each) for each in (start + HALF, end) if at < each]


def _session(at: datetime) -> list[Window]:
    session = [at]
    for earlier in sorted((each for each in TIMES if each < at), reverse=True):
        session = [earlier, *session] if session[0] - earlier <= HALF else session
    for later in sorted(each for each in TIMES if each > at):
        session = [*session, later] if later - session[-1] <= HALF else session
    return [(session[0], session[-1] + HALF)]


KINDS: Mapping[str, tuple[str, Callable[[datetime], list[Window]]]] = {
    "tumble": ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)", _tumble),
    "hop": ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)", _hop),
    "cumulate": ("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)", _cumulate),
    "session": ("SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE)", _session),
}
COLUMNS = ("window_start", "window_end", "window_time")
GROUPS = [order for count in (2, 3) for order in permutations(COLUMNS, count)]
SOURCES = {
    "as it is": "SELECT {columns}, COUNT(*) AS n FROM TABLE({window}) GROUP BY {columns}",
    "derived": "SELECT {columns}, COUNT(*) AS n FROM (SELECT * FROM TABLE({window}) WHERE id > 0) GROUP BY {columns}",
    "again": (
        "SELECT {columns}, SUM(n) AS n FROM (SELECT {columns}, id, COUNT(*) AS n FROM TABLE({window}) "
        "GROUP BY {columns}, id) AS d GROUP BY {columns}"
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_grouped_by_any_of_their_columns(tmp_path: Path, kind: str, source: str) -> None:
    """Windows can be grouped by their columns in any order, with updating results and with final ones."""
    window, windows = KINDS[kind]
    changes = inserts("t", [{"id": n, "ts": each.isoformat()} for n, each in enumerate(TIMES, 1)])
    for number, columns in enumerate(GROUPS):
        expected = Counter(_values(columns, each) for at in TIMES for each in windows(at))
        sink = {"mode": "retract", "emit": "final" if number % 2 and "window_end" in columns else "changes"}
        sql = SOURCES[source].format(columns=", ".join(columns), window=window)
        found = folded(tmp_path, sql, {"t": TABLE}, changes, sink=sink, batch_rows=1 + number % 3)
        rows = [tuple(datetime.fromisoformat(row[name]) for name in columns) for row in found]
        assert len(set(rows)) == len(rows), f"{sql}: {found}"
        assert dict(zip(rows, (row["n"] for row in found), strict=True)) == expected, f"{sql}: {found}"


def _values(columns: Sequence[str], window: Window) -> tuple[datetime, ...]:
    start, end = window
    named = {"window_start": start, "window_end": end, "window_time": end - timedelta(milliseconds=1)}
    return tuple(named[name] for name in columns)
