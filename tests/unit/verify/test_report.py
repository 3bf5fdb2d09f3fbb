"""The report of an audit as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

from rowkind.service.verify.compare import Compared, Difference
from rowkind.service.verify.judgement import RowBehind, SinkAudit
from rowkind.service.verify.report import document, lines

ROW: dict[str, Any] = {
    "a": nan,
    "b": [inf, -inf, None],
    "c": {"x": nan},
    "d": Decimal("1E+2"),
    "e": datetime(2026, 1, 1, 0, 0, 5, 500_000, UTC),
    "f": date(2026, 1, 2),
    "g": b"\xff",
}
JSON: dict[str, Any] = {
    "a": "NaN",
    "b": ["Infinity", "-Infinity", None],
    "c": {"x": "NaN"},
    "d": "100",
    "e": "2026-01-01T00:00:05.500000Z",
    "f": "2026-01-02",
    "g": "/w==",
}


def _refused(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def test_every_value_is_json() -> None:
    """NaN, infinities, times, decimals and bytes have the forms of `rowkind consume`, also in the rows behind."""
    behind = (RowBehind("t", "topic", 0, 1, ROW),)
    audit = SinkAudit("s", "topic", "differs", "", (), Compared(0, 1, 0, 0, [Difference(ROW, None)]), (behind,))
    (line,) = document([audit])
    found = json.loads(line, parse_constant=_refused)["first"][0]
    assert (found["expected"], found["found"], found["sources"][0]["row"]) == (JSON, None, JSON)
    assert any("NaN" in each for each in lines([audit]))


def test_the_notes_of_a_sink_that_is_not_compared_are_reported() -> None:
    """What was compared in part is in both forms of the report."""
    audit = SinkAudit("s", "topic", "not compared", "MATCH_RECOGNIZE", ("only rows",), Compared(0, 0, 7, 0))
    (line,) = document([audit])
    assert json.loads(line) == {
        "sink": "s",
        "topic": "topic",
        "verdict": "not compared",
        "reason": "MATCH_RECOGNIZE",
        "notes": ["only rows"],
    }
    assert [each.strip() for each in lines([audit])] == ["s  not compared: MATCH_RECOGNIZE", "only rows"]
