"""Scenarios in which a job continues from a checkpoint that is older than its results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.checks import CHECKS
from tests.chaos.conftest import SetStage
from tests.chaos.stage import SLOW

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_checkpoint_that_is_put_back_is_brought_forward(set_stage: SetStage) -> None:
    """Batches written since are replayed for their state only, and the open batch is completed as it was begun."""
    stage = set_stage(*CHECKS)
    stage.manipulate(0.3)
    stage.runs()
    copy = stage.checkpoint.parent.with_name("copy")
    shutil.copytree(stage.checkpoint.parent, copy)
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.catch_up(job)
        stage.manipulate(0.1)
        stage.half_written(job, stage.one())
        job.kill()
    shutil.rmtree(stage.checkpoint.parent)
    shutil.copytree(copy, stage.checkpoint.parent)
    stage.manipulate(0.1)
    with stage.job() as job:
        stage.catch_up(job)
        assert "the checkpoint is older than the results" in job.error
        # At rest, no row is lost and no batch is repeated.
        job.kill()
    assert stage.unfinished() is None
    stage.manipulate(0.1)
    said = stage.runs()
    assert "older" not in said
    stage.validate()


def test_a_checkpoint_whose_place_was_taken_is_refused(set_stage: SetStage) -> None:
    """A replaced or lost checkpoint is refused, and a rebuilt job writes only missing rows, none twice."""
    stage = set_stage(*CHECKS)
    stage.manipulate(0.3)
    stage.runs()
    before = stage.written()
    copy = stage.checkpoint.parent.with_name("copy")
    stage.checkpoint.parent.rename(copy)
    with stage.job() as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "already have rows" in ended.error
    with stage.job("--upgrade") as job:
        stage.await_words(job, "was updated; changes written: 0", 3)
        assert stage.written() == before
        stage.manipulate(0.2)
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    assert not stage.filling_topics()
    # This checkpoint does not have the batches written since, and would write them again.
    shutil.rmtree(stage.checkpoint.parent)
    copy.rename(stage.checkpoint.parent)
    with stage.job() as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "were last written from another checkpoint" in ended.error
    stage.runs("--reset-state")
    stage.validate()


def test_a_job_that_has_lost_its_checkpoint_begins_with_a_savepoint(set_stage: SetStage, tmp_path: Path) -> None:
    """A job starts from a savepoint made while it ran, no row is doubled or missing, and the next start ignores it."""
    stage = set_stage(*CHECKS)
    savepoint = tmp_path / "savepoint"
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.catch_up(job)
        stage.manipulate(0.2)
        with stage.command("savepoint", str(savepoint)) as saving:
            saved = saving.ended(SLOW)
        assert saved.code == 0, saved.error
        assert saved.output.startswith("query main: saved as of batch "), saved.output
        stage.manipulate(0.2)
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.half_written(job, stage.one())
        job.kill()
    shutil.rmtree(stage.checkpoint.parent)
    # The state that a start leaves if it is killed before the savepoint is copied completely.
    stage.checkpoint.parent.mkdir(parents=True)
    (stage.checkpoint.parent / "rowkind.half-full").touch()
    with stage.job() as job:
        refused = job.ended(SLOW)
    assert refused.code == 2, refused.error
    assert "run again with --from" in refused.error
    said = stage.runs("--from", str(savepoint))
    assert "query main starts from the savepoint" in said
    assert "the checkpoint is older than the results" in said
    stage.manipulate(0.1)
    said = stage.runs("--from", str(savepoint))
    assert "the savepoint is not used" in said
    stage.validate()
