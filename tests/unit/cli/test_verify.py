"""`rowkind verify` for a job that it cannot audit: the message and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowkind.errors import REFUSED
from rowkind.service.cli.commands import main
from rowkind.service.client.external_table import OutsideError
from rowkind.service.client.folded_topics import FoldedTopics

JOB = {
    "job": "audited",
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "registry": {"folder": "schemas"},
    "tables": {"orders": {"topic": "orders", "mode": "append", "columns": {"id": "BIGINT", "amount": "INT"}}},
    "sinks": {"totals": {"topic": "totals", "mode": "retract", "sql": "SELECT COUNT(*) AS n FROM orders"}},
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(JOB))
    return file


def verify(job: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", str(job), *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["total"], "there is no sink 'total'"),
        (["--metrics", "/none/such/rowkind.prom"], "--metrics: folder /none/such does not exist"),
        (["--sample", "0"], "'--sample': 0.0 is not in the range"),
        (["--since", "yesterday"], "'--since': 'yesterday' does not match the formats"),
    ],
    ids=lambda each: each[0].strip("-") if isinstance(each, list) else "",
)
def test_a_mistake_ends_with_2(arguments: list[str], message: str, job: Path) -> None:
    """A wrong argument is refused with a message, before Kafka is asked."""
    ended = verify(job, *arguments)
    assert ended.exit_code == REFUSED
    assert message in ended.stderr


def test_a_job_without_kafka_ends_with_2(job: Path) -> None:
    """A job that has no topics cannot be audited."""
    job.write_text(json.dumps({name: each for name, each in JOB.items() if name != "kafka"}))
    ended = verify(job)
    assert ended.exit_code == REFUSED
    assert "`kafka` is missing" in ended.stderr


def test_a_wrong_memory_limit_is_refused(job: Path) -> None:
    """DuckDB does not know the unit."""
    with pytest.raises(OutsideError, match="memory limit '1XB' is not valid: write a size such as 1GB"):
        FoldedTopics(job, memory="1XB")
