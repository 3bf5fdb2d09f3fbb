"""`rowkind why` on tables and sinks that have no topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rowkind.service.cli.commands import main
from rowkind.service.cli.why_output import document, text
from tests.trying import job
from tests.unit.why.explained import explained

TABLES = {"t": {"mode": "append", "columns": {"id": "BIGINT NOT NULL"}}}
CHANGES = [{"table": "t", "op": "+I", "row": {"id": 1}}]
SQL = "SELECT id FROM t"


@pytest.mark.parametrize("kafka", [{}, {"kafka": {"bootstrap.servers": "127.0.0.1:1"}}])
def test_a_sink_over_a_generated_table_is_refused(tmp_path: Path, kafka: dict[str, Any]) -> None:
    """The message names the table and says what to do, whether or not the job has brokers."""
    file = tmp_path / "job.yaml"
    columns = {"id": "BIGINT NOT NULL"}
    tables = {"t": {"mode": "append", "columns": columns, "generate": {}}}
    file.write_text(json.dumps({"job": "j", "tables": tables, "sinks": {"o": {"mode": "append", "sql": SQL}}, **kafka}))
    result = CliRunner().invoke(main, ["why", str(file), "o", "id=1"])
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "rowkind: rowkind why cannot explain sink o: the job generates the rows of table t,"
    )
    assert "or run the query on a file of changes with `rowkind try`" in result.stderr


@pytest.mark.parametrize("to", ["print", "blackhole"])
def test_the_rows_of_a_sink_without_a_topic_are_explained(tmp_path: Path, to: str) -> None:
    """The answer says that there is no topic to compare the rows with."""
    sink = {"to": to}
    planned, found = explained(tmp_path, TABLES, CHANGES, SQL, "id=1", sink)
    assert len(found.rows) == 1
    lines = list(map(click.unstyle, text(job(tmp_path, SQL, TABLES, sink=sink), planned, found)))
    assert f"- with `to: {to}`, the sink has no topic, so the rows could not be compared with it" in lines
    assert document(planned, found)["topic"] == {"topic": None, "rows": None, "differs": False}
