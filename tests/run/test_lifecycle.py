"""How a job ends: by a signal while it starts, or by invalid records that it must not tolerate."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from tests.kafka.sinks import committed
from tests.processes import command, descendants
from tests.run.process import Rowkind, get, until
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LIKED = {"mode": "append", "sql": "SELECT rating_id, stars FROM ratings"}
SLOW = 400.0


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop with two ratings."""
    made = Shop(broker.bootstrap_servers, tmp_path, f"life-{os.getpid()}-{tmp_path.name}")
    made.row("ratings", "+I", rating_id=1, stars=5)
    made.row("ratings", "+I", rating_id=2, stars=3)
    made.flush()
    return made


def run(shop: Shop, job: Path, *arguments: str) -> Rowkind:
    """Run the job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0", *arguments)


def test_a_record_that_may_not_be_tolerated_stops_the_job_with_its_place(shop: Shop) -> None:
    """With `tolerance: none`, the message names topic, partition and offset, and what is wrong with the record."""
    bad = shop.tell("ratings", None, b"this is not Avro", [("op", b"+I")])
    shop.flush()
    letters = {"topic": shop.topic("dead-letters"), "tolerance": "none"}
    with run(shop, shop.job({"liked": LIKED}, dead_letters=letters)) as job:
        ended = job.ended(SLOW)
    assert ended.code == 1, ended.error
    assert f"Topic {bad.topic}, partition {bad.partition}, offset {bad.offset}: " in ended.error
    assert "dead letter topic" in ended.error
    assert "Traceback" not in ended.error
    assert len(ended.said) < 25
    assert not committed({"bootstrap.servers": shop.servers}, shop.topic("dead-letters"))


def test_sparks_python_processes_are_forked_from_the_command(shop: Shop) -> None:
    """The command loads all modules while it has one thread; otherwise each module would be loaded twice."""
    with run(shop, shop.job({"liked": LIKED})) as job:
        assert job.port
        [forks] = [pid for pid in descendants(job.pid) if b"-m\0rowkind.service.processes.forks\0" in command(pid)]
        # A separate program would have the path of Python, as the command itself has.
        assert command(forks).split(b"\0")[0] == b"python"
        job.terminate()
        assert job.ended(SLOW).code == 0


def test_a_job_whose_records_are_no_rows_says_so_and_stops_where_it_should(shop: Shop) -> None:
    """`/healthz` and the log report that almost all recent records are invalid; past `max_ratio` the job ends."""
    for _ in range(150):
        shop.tell("ratings", None, b"this is not Avro", [("op", b"+I")])
    shop.flush()
    letters = {"topic": shop.topic("dead-letters")}
    with run(shop, shop.job({"liked": LIKED}, dead_letters=letters)) as job:
        told = "99% of its last 152 records are dead letters (framing 150)"
        until(lambda: told in get(job.port, "/healthz")[1], "a warning", lambda: job.error)
        assert get(job.port, "/healthz")[0] == 200
        assert job.error.count(told) == 1
        job.terminate()
        assert job.ended(SLOW).code == 0
    for _ in range(150):
        shop.tell("ratings", None, b"this is not Avro", [("op", b"+I")])
    shop.flush()
    with run(shop, shop.job({"liked": LIKED}, dead_letters=letters | {"max_ratio": 0.5})) as job:
        ended = job.ended(SLOW)
    assert ended.code == 1, ended.error
    assert "`max_ratio: 0.5`, so it has stopped" in ended.error
    assert "Traceback" not in ended.error


def test_a_job_that_is_stopped_while_it_starts_ends_well(shop: Shop) -> None:
    """After SIGTERM before the first query, no query is started and the exit code is 0."""
    port = free_port()
    job = shop.job({"liked": LIKED})
    with Rowkind(shop.folder / "output", "run", str(job), "--port", str(port)) as starting:
        until(lambda: get(port, "/healthz")[0] == 200, "the first answer", lambda: starting.error)
        starting.terminate()
        ended = starting.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "writing to topic" not in ended.error
