"""When the planner derives that a column is NOT NULL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.job.load import load
from rowkind.service.plan.columns import columns
from rowkind.service.plan.pipeline import logical


@pytest.mark.parametrize(
    ("query", "mode", "nullable"),
    [
        ("SELECT TIMESTAMP_MILLIS(ms) AS at FROM t", "append", True),
        ("SELECT TIMESTAMP_MILLIS(ms) AS at FROM t WHERE ms IS NOT NULL", "append", False),
        ("SELECT TIMESTAMP_MILLIS(ms) AS at FROM t WHERE TIMESTAMP_MILLIS(ms) IS NOT NULL", "append", False),
        ("SELECT TRY_CAST(s AS TIMESTAMP) AS at FROM t WHERE TRY_CAST(s AS TIMESTAMP) IS NOT NULL", "append", False),
        ("SELECT TRY_CAST(s AS TIMESTAMP) AS at FROM t WHERE s IS NOT NULL", "append", True),
        ("SELECT TRY_CAST(s AS INT) AS at FROM t WHERE TRY_CAST(s AS INT) > 3 AND ms > 1", "append", False),
        ("SELECT TRY_CAST(s AS INT) AS at FROM t WHERE TRY_CAST(s AS INT) > 3 OR ms > 1", "append", True),
        ("SELECT TRY_CAST(s AS INT) AS at FROM t WHERE TRY_CAST(s AS INT) > 3", "upsert", True),
    ],
)
def test_an_output_is_not_null_if_the_filter_below_rejects_null(
    tmp_path: Path, query: str, mode: str, *, nullable: bool
) -> None:
    """A filter on the expression makes it NOT NULL, except for upsert tables, whose rows may represent deletes."""
    table: dict[str, Any] = {"mode": mode, "columns": {"id": "INT NOT NULL", "ms": "BIGINT", "s": "STRING"}}
    if mode == "upsert":
        table["primary_key"] = ["id"]
    job = {"job": "j", "tables": {"t": table}, "sinks": {"o": {"mode": "retract", "sql": query}}}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    assert columns(logical(load(file), "o").root)["at"].nullable == nullable
