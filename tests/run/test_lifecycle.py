"""How a job's life begins and ends: signals, a plan that has changed, a record that it may not tolerate."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.kafka.sinks import committed
from tests.run.process import Rowkind, free_port, get, until
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
    """The job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0", *arguments)


def written(shop: Shop) -> int:
    """How many rows the result topic has."""
    return len(committed({"bootstrap.servers": shop.servers}, shop.topic("liked")))


def test_a_changed_plan_is_refused_until_its_state_is_reset(shop: Shop) -> None:
    """State of another plan is not touched; with --reset-state everything is read again. SIGINT ends a job, too."""
    before = shop.job({"liked": LIKED})
    with run(shop, before) as job:
        until(lambda: written(shop) == 2, "two rows", lambda: job.error, SLOW)
        os.kill(job.pid, signal.SIGINT)
        assert job.ended().code == 0, job.error
    changed = shop.job({"liked": LIKED | {"sql": "SELECT rating_id, stars FROM ratings WHERE stars > 3"}})
    with run(shop, changed) as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "Traceback" not in ended.error
    for text in (str(shop.checkpoint), "belongs to another plan", "filter: none -> ", "stars > 3", "--reset-state"):
        assert text in ended.error
    assert len(ended.error.splitlines()) < 25
    assert written(shop) == 2
    with run(shop, changed, "--reset-state") as job:
        until(lambda: written(shop) == 3, "the one row that is left", lambda: job.error, SLOW)
        job.terminate()
        assert job.ended().code == 0, job.error


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
    assert len(ended.error.splitlines()) < 25
    assert not committed({"bootstrap.servers": shop.servers}, shop.topic("dead-letters"))


def test_a_job_that_is_stopped_while_it_starts_ends_well(shop: Shop) -> None:
    """SIGTERM before the first query: none is started, and the exit code is 0."""
    port = free_port()
    job = shop.job({"liked": LIKED})
    with Rowkind(shop.folder / "output", "run", str(job), "--port", str(port)) as starting:
        until(lambda: get(port, "/healthz")[0] == 200, "the first answer", lambda: starting.error)
        starting.terminate()
        ended = starting.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "writing to topic" not in ended.error
