"""A scenario in which a checkpoint is put back that is older than what has been written since."""

from __future__ import annotations

import shutil

import pytest

from tests.chaos.checks import CHECKS
from tests.chaos.conftest import SetStage

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_checkpoint_that_is_put_back_is_brought_forward(set_stage: SetStage) -> None:
    """What was written since is done again for the state alone, the batch that was under way as it was begun."""
    stage = set_stage(*CHECKS)
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    copy = stage.checkpoint.parent.with_name("copy")
    shutil.copytree(stage.checkpoint.parent, copy)
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.half_written(job, stage.one())
        job.kill()
    shutil.rmtree(stage.checkpoint.parent)
    shutil.copytree(copy, stage.checkpoint.parent)
    stage.manipulate(0.1)
    with stage.job() as job:
        stage.catch_up(job)
        assert "the checkpoint is older than the results" in job.error
        job.kill()
    stage.manipulate(0.1)
    with stage.job() as job:
        stage.catch_up(job)
        assert "older" not in job.error
        assert stage.drain(job).code == 0, job.error
    stage.validate()
