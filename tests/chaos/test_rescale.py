"""A scenario in which a job's state moves to more and fewer partitions, and the job is killed meanwhile."""

from __future__ import annotations

import json

import pytest

from tests.chaos.checks import CHAINED, CHECKS, UPSERT
from tests.chaos.conftest import SetStage
from tests.chaos.stage import SLOW, Stage

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_state_moves_to_more_and_fewer_partitions(set_stage: SetStage) -> None:
    """State moves from 2 to 4 by `rescale` with a half-written batch, and from 4 to 1 at a start that is killed."""
    stage = set_stage(*CHECKS, CHAINED)
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.half_written(job, UPSERT.name)
        job.kill()
    stage.manipulate(0.1)
    stage.change(parallelism=4)
    with stage.job() as job:
        refused = job.ended(SLOW)
    assert refused.code == 2, refused.error
    assert "was written with `parallelism: 2`" in refused.error
    with stage.command("rescale") as rescale:
        ended = rescale.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "moving its state from parallelism 2 to 4" in ended.error
    assert partitions(stage) == {"2", "4"}
    assert "moving" not in stage.runs()
    stage.manipulate(0.2)
    stage.change(parallelism=1)
    with stage.job("--upgrade") as job:
        stage.await_words(job, "moving its state from parallelism 4 to 1")
        job.kill()
    stage.manipulate(0.2)
    with stage.job("--upgrade") as job:
        stage.await_words(job, "moving its state from parallelism 4 to 1")
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    stage.validate()


def partitions(stage: Stage) -> set[str]:
    """Return the numbers of state partitions that Spark's offset log has for its batches."""
    logs = (each for each in (stage.checkpoint / "offsets").iterdir() if each.name.isdigit())
    return {json.loads(log.read_text().splitlines()[1])["conf"]["spark.sql.shuffle.partitions"] for log in logs}
