"""The answers of `rowkind why` where time decides: sessions, as-of joins, lookups, patterns and late rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rowkind.service.why.answer import RowExplanation
from tests.unit.why.explained import explained, named

WATERMARK = {"column": "at", "delay": "1m"}
TABLES = {
    "events": {
        "mode": "append",
        "columns": {"customer": "STRING NOT NULL", "page": "STRING", "at": "TIMESTAMP NOT NULL"},
        "watermark": WATERMARK,
    },
    "rates": {
        "mode": "upsert",
        "primary_key": "customer",
        "columns": {"customer": "STRING NOT NULL", "rate": "INT", "at": "TIMESTAMP NOT NULL"},
        "watermark": WATERMARK,
    },
}


def event(customer: str, minute: int, page: str) -> dict[str, Any]:
    """Return an event."""
    row = {"customer": customer, "page": page, "at": f"2026-01-05T12:{minute:02}:00Z"}
    return {"table": "events", "op": "+I", "row": row}


def rate(customer: str, minute: int, value: int) -> dict[str, Any]:
    """Return a change of a rate."""
    row = {"customer": customer, "rate": value, "at": f"2026-01-05T12:{minute:02}:00Z"}
    return {"table": "rates", "op": "+U", "row": row}


CHANGES = [
    rate("Ada", 0, 1),
    event("Ada", 1, "a"),
    event("Ada", 2, "b"),
    rate("Ada", 5, 2),
    event("Ada", 6, "c"),
    event("Bob", 6, "x"),
    event("Ada", 20, "d"),
    event("Bob", 30, "z"),
    rate("Bob", 30, 9),
    event("Ada", 3, "late"),
    event("Cid", 4, "late too"),
]
SESSIONS = """
    SELECT window_start, customer, COUNT(*) AS n
    FROM TABLE(SESSION(TABLE events PARTITION BY customer, DESCRIPTOR(at), INTERVAL '5' MINUTES))
    GROUP BY window_start, window_end, customer
"""
TUMBLED = """
    SELECT window_start, customer, page, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(at), INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, customer, page
"""
AS_OF = """
    SELECT e.customer, e.page, r.rate FROM events e
    LEFT JOIN rates FOR SYSTEM_TIME AS OF e.at AS r ON r.customer = e.customer
"""
LOOKUP = """
    SELECT e.customer, e.page, r.rate FROM events e
    LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON r.customer = e.customer
"""
PATTERN = """
    SELECT * FROM events MATCH_RECOGNIZE (
      PARTITION BY customer ORDER BY at MEASURES A.at AS began, B.at AS ended
      ONE ROW PER MATCH PATTERN (A B) DEFINE A AS A.page = 'a', B AS B.page = 'b'
    ) m
"""


def why(folder: Path, sql: str, key: str) -> RowExplanation:
    """Return the answer."""
    return explained(folder, TABLES, CHANGES, sql, key, {"mode": "retract"})[1]


@pytest.mark.parametrize(
    ("sql", "key", "sources"),
    [
        (SESSIONS, "customer=Ada n=3", {"events": [2, 3, 5]}),
        (SESSIONS, "customer=Ada n=1", {"events": [7]}),
        (AS_OF, "page=b", {"events": [3], "rates": [1]}),
        (AS_OF, "page=c", {"events": [5], "rates": [4]}),
        (AS_OF, "page=x", {"events": [6]}),
        (LOOKUP, "page=a", {"events": [2], "rates": [1]}),
        (LOOKUP, "page=c", {"events": [5], "rates": [4]}),
        (LOOKUP, "page=x", {"events": [6]}),
        # All rows of the partition are named, because each of them may decide the match.
        (PATTERN, "customer=Ada", {"events": [2, 3, 5, 7, 10]}),
    ],
)
def test_a_row_derives_from_the_named_source_rows(
    tmp_path: Path, sql: str, key: str, sources: dict[str, list[int]]
) -> None:
    """The rows and the versions that the row derives from are named."""
    found = why(tmp_path, sql, key)
    assert len(found.rows) == 1
    assert named(found) == sources


@pytest.mark.parametrize(
    ("sql", "key", "step", "kind", "text"),
    [
        (SESSIONS, "customer=Eve", "scan_events", "no row", "customer = 'Eve'"),
        (SESSIONS, "customer=Ada n=4", "aggregate_1", "value", "has 2 rows with events.customer = 'Ada', but none"),
        (SESSIONS, "customer=Cid", "session_1", "late", "dropped 1 row as late"),
        (TUMBLED, "page=late", "aggregate_1", "late", "dropped 1 row as late"),
        (AS_OF, "page=late", "asof_join_1", "late", "dropped 1 row as late"),
        (AS_OF, "page=x rate=9", "asof_join_1", "no match", "none of them has a time that fits the left row"),
        (LOOKUP, "page=x rate=9", "lookup_1", "no match", "none of them was there when the left row was read"),
        (PATTERN, "customer=Bob", "match_1", "step", "the row is in no match of the pattern"),
        (PATTERN, "began=2026-01-05T12:02:00Z", "match_1", "value", "the step has 1 row, but none with began"),
    ],
)
def test_a_missing_row_is_left_out_by_the_named_step(
    tmp_path: Path, sql: str, key: str, step: str, kind: str, text: str
) -> None:
    """The cause says which step leaves the row out, and whether time is the reason."""
    found = why(tmp_path, sql, key)
    assert not found.rows
    (cause,) = found.causes
    assert (cause.step, cause.kind) == (step, kind)
    assert text in cause.text


def test_all_late_changes_of_a_step_are_counted(tmp_path: Path) -> None:
    """Late changes of several batches are one note."""
    assert "aggregate_1: 2 late changes dropped in the replay" in why(tmp_path, TUMBLED, "page=late").notes
