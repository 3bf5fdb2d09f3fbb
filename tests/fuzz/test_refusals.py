"""Any job file is planned, or refused with a message that says where the error is; there is never a stack trace."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.job.sink import Sink
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.tree import walk
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine
from tests.examples.jobs import EXAMPLES
from tests.fuzz.job_texts import changed, torn
from tests.fuzz.sql_texts import Grammar, broken
from tests.plan.cases import TABLES, cases
from tests.plan.changelogs import World

MOST_LINES = 14
"""The most lines that a message may have, so that it fits on a screen."""


@cache
def valid() -> list[str]:
    """Return the queries of the cases that are planned."""
    return [case.sql for case in cases() if not case.is_refused]


def check_sql(sql: str, seed: int) -> bool:
    """Return whether a query is planned, explain and run it if so; fail on errors that no user should see."""
    job = with_query(sql)
    try:
        sink = plan(job, "result")
    except PlanError as error:
        message = str(error)
        assert re.match(r"\S+tables\.yaml:\d+: (sinks\.result\.\w+|views\.\w+): \S", message), message
        _check_length(message)
        return False
    explain([sink])
    scans = {node.source.table: False for node in walk(sink) if isinstance(node, PhysicalScan)}
    engine = MemoryEngine(sink)
    try:
        for number, (batch, _) in enumerate(World.of(job, scans, seed).batches(2) if scans else []):
            engine.batch(batch, now=number)
    except ExpressionError as error:
        _check_length(str(error))
    return True


def _check_length(message: str) -> None:
    assert len(message.splitlines()) <= MOST_LINES, message


@cache
def _tables() -> Job:
    return load(TABLES, {})


def with_query(sql: str) -> Job:
    """Return the cases' tables with this query."""
    return _tables().model_copy(update={"sinks": {"result": Sink(topic="result", mode="retract", sql=sql)}})


@pytest.mark.parametrize("seed", range(120))
def test_random_queries_are_planned_or_refused(seed: int) -> None:
    """A query of a grammar that mostly ignores types and meaning is planned or refused."""
    print(f"seed {seed}")
    sql = Grammar(random.Random(seed)).query()
    print(sql)
    check_sql(sql, seed)


@pytest.mark.parametrize("seed", range(30))
def test_broken_queries_are_planned_or_refused(seed: int) -> None:
    """Ten valid queries with words removed, duplicated, swapped or replaced are planned or refused."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(10):
        sql = broken(rng, rng.choice(valid()), rng.choice(valid()))
        print(sql)
        check_sql(sql, seed)


@pytest.mark.parametrize("seed", range(20))
def test_broken_job_files_are_planned_or_refused(seed: int, tmp_path: Path) -> None:
    """`rowkind check` accepts or refuses five job files with changed settings or damaged lines."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(5):
        text = rng.choice([path.read_text() for path in (EXAMPLES / "orders-payments" / "job.yaml", TABLES)])
        text = (changed if rng.random() < 0.5 else torn)(rng, text)
        print(text)
        check_file(text, tmp_path / "job.yaml")


def check_file(text: str, file: Path) -> bool:
    """Check a job file as the command line does; return whether it is valid."""
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    result = CliRunner().invoke(main, ["check", str(file)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 2), result.output
    if result.exit_code:
        assert result.output.startswith(f"rowkind: {file}"), result.output
    return result.exit_code == 0


def test_a_setting_whose_name_is_a_number_is_a_setting(tmp_path: Path) -> None:
    """YAML reads `1: x` as a number, but Kafka's settings have text names; this once raised a KeyError."""
    check_file(TABLES.read_text() + "\nkafka: {bootstrap.servers: 'localhost:9092', 1: x}\n", tmp_path / "job.yaml")
