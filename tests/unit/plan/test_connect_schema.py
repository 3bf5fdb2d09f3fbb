"""The results that a sink with Kafka Connect schemas accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan


def planned(folder: Path, sql: str, key: str) -> None:
    """Plan a sink with `connect_schema` over a table with times."""
    columns = {"id": "INT NOT NULL", "at": "TIMESTAMP NOT NULL", "at_ms": "TIMESTAMP(3) NOT NULL"}
    table = {"mode": "upsert", "format": "json", "columns": columns, "primary_key": ["id", "at", "at_ms"]}
    sink = {"mode": "upsert", "format": "json", "connect_schema": True, "key": key, "sql": sql}
    (folder / "job.yaml").write_text(json.dumps({"job": "connect", "tables": {"t": table}, "sinks": {"o": sink}}))
    assert plan(load(folder / "job.yaml"), "o").connect_schema


def test_times_with_milliseconds_may_be_keys(tmp_path: Path) -> None:
    """Times with milliseconds and numbers can be keys, and values can have any precision."""
    planned(tmp_path, "SELECT id, MAX(at) AS at FROM t GROUP BY id", "id")
    planned(tmp_path, "SELECT at_ms, COUNT(*) AS n FROM t GROUP BY at_ms", "at_ms")
    planned(tmp_path, "SELECT UNIX_MICROS(at) AS at, COUNT(*) AS n FROM t GROUP BY UNIX_MICROS(at)", "at")


def test_times_with_microseconds_are_no_keys(tmp_path: Path) -> None:
    """Times with microseconds cannot be keys, because in Connect's milliseconds two keys could become equal."""
    with pytest.raises(PlanError, match=r"the key column 'at' is TIMESTAMP with microseconds.*UNIX_MICROS\(at\)"):
        planned(tmp_path, "SELECT at, COUNT(*) AS n FROM t GROUP BY at", "at")


def test_types_that_connect_does_not_have_are_refused(tmp_path: Path) -> None:
    """A type that Kafka Connect does not have is refused with the column's name."""
    with pytest.raises(PlanError, match="column 'x' has type VOID, which Kafka Connect does not have"):
        planned(tmp_path, "SELECT id, MAX(at) AS at, NULL AS x FROM t GROUP BY id", "id")
