"""Scenarios in which processes are killed or stopped: at any moment, each topic has every change exactly once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.chaos.checks import CHAINED, CHECKS, RETRACT_BY_KEY, UPSERT
from tests.chaos.conftest import SetStage
from tests.chaos.stage import SLOW

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_killed_inside_batches(set_stage: SetStage) -> None:
    """Results are right if all processes are killed in a batch, or the driver between Kafka's and Spark's commit."""
    stage = set_stage(*CHECKS, CHAINED)
    stage.manipulate(0.5)
    # A batch may end between the check and the kill.
    for _ in range(5):
        with stage.job() as job:
            stage.inside_a_batch(job)
            job.kill()
        if stage.unfinished() is not None:
            break
    else:
        raise AssertionError("no kill hit a batch")
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.half_written(job, stage.one())
        job.kill_driver()
        # The JVM and its workers have not noticed yet.
        with stage.job() as successor:
            stage.catch_up(successor)
            assert stage.drain(successor).code == 0, successor.error
    stage.validate()


def test_robbed_of_processes_then_drained(set_stage: SetStage) -> None:
    """The job recovers from a lost worker, planner or JVM, and SIGTERM to all processes drains it."""
    stage = set_stage(RETRACT_BY_KEY)
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.inside_a_batch(job)
        os.kill(job.busy_worker(), signal.SIGKILL)
        stage.catch_up(job)
        os.kill(job.planner(), signal.SIGKILL)
        stage.manipulate(0.1)
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        os.kill(job.java(), signal.SIGKILL)
        stage.catch_up(job)
        assert job.error.count("Spark's Java process was killed by signal 9") == 1, job.error
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        job.terminate_all()
        ended = job.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error
    assert stage.unfinished() is None, "the batch in progress was not finished"
    stage.manipulate(0.1)
    with stage.job() as job:
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    stage.validate()


def test_a_second_run_takes_over_and_the_first_one_stops(set_stage: SetStage) -> None:
    """Of two runs over one checkpoint the later continues, the earlier reports why it stops, and no row is doubled."""
    stage = set_stage(UPSERT)
    stage.manipulate(0.5)
    with stage.job() as first:
        stage.inside_a_batch(first)
        with stage.job() as second:
            ended = first.ended()
            assert ended.code == 1, ended.error
            assert "a later run of job" in ended.error
            assert "Traceback" not in ended.error
            assert len(ended.error.splitlines()) < 25, ended.error
            stage.manipulate(0.5)
            stage.catch_up(second)
            assert stage.drain(second).code == 0, second.error
    stage.validate()
