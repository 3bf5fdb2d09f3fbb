"""Scenarios in which processes are killed or stopped: whatever the moment, each topic has every change exactly once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.chaos.checks import CHECKS
from tests.chaos.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.xdist_group("chaos")]


def test_killed_again_and_again_inside_batches(stage: Stage) -> None:
    """SIGKILL at random moments inside batches, and between Kafka's commit and Spark's; once the orphans live on."""
    names = stage.random.sample([check.name for check in CHECKS], 3)
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.inside_a_batch(job, names[0])
        job.kill()
    assert stage.unfinished(), "the kill hit no batch"
    with stage.job() as job:
        stage.half_written(job, names[1])
        job.kill()
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.inside_a_batch(job, names[2])
        job.kill_driver()
        with stage.job() as successor:
            stage.catch_up(successor)
            assert stage.drain(successor).code == 0, successor.error
    stage.validate()


def test_killed_between_batches_then_robbed_of_a_worker_then_drained(stage: Stage) -> None:
    """SIGKILL at rest loses nothing; a task whose worker dies is done again; SIGTERM leaves no batch half done."""
    stage.manipulate(0.2)
    with stage.job() as job:
        stage.catch_up(job)
        job.kill()
    assert not stage.unfinished()
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.inside_a_batch(job, stage.random.choice(CHECKS).name)
        os.kill(job.busy_worker(), signal.SIGKILL)
        stage.catch_up(job)
        stage.manipulate(0.5)
        stage.inside_a_batch(job, stage.random.choice(CHECKS).name)
        ended = stage.drain(job)
    assert ended.code == 0, ended.error
    assert not stage.unfinished(), "the batch in progress was not finished"
    with stage.job() as job:
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    stage.validate()


def test_a_second_run_takes_over_and_the_first_one_stops(stage: Stage) -> None:
    """Of two runs over one checkpoint the later goes on, the earlier says why it stops, nothing is twice."""
    stage.manipulate(0.5)
    with stage.job() as first:
        stage.inside_a_batch(first, CHECKS[0].name)
        with stage.job() as second:
            ended = first.ended()
            assert ended.code == 1, ended.error
            assert "a later run of job" in ended.error
            assert "Traceback" not in ended.error
            stage.manipulate(0.5)
            stage.catch_up(second)
            assert stage.drain(second).code == 0, second.error
    stage.validate()
