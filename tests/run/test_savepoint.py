"""Savepoints that cannot be written or restored are refused, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.errors import REFUSED
from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.savepoint import restore, saved
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.monitoring.progress import Works
from rowkind.service.query.errors import CheckpointFolderError, SavepointError

pytestmark = pytest.mark.spark

JOB = """
job: shop
checkpoint: {checkpoint}
tables: {{orders: {{mode: append, columns: {{id: BIGINT NOT NULL}}}}}}
sinks: {{all: {{mode: append, sql: SELECT id FROM orders}}}}
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that has never run."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(checkpoint=tmp_path / "checkpoint"))
    return load(file, {})


def claimed(spark: SparkSession, folder: Path) -> None:
    """Create a checkpoint of the job's query below this folder."""
    Checkpoint(spark, str(folder / "shop" / "main")).claim(Contents({"all": {}}, shards=2, parallelism=2, levels=0))


def test_a_job_that_has_never_run_has_nothing_to_save(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """The savepoint is refused, and no folder is created."""
    with pytest.raises(SavepointError, match="there is nothing to save: job shop has no checkpoint") as refused:
        saved(spark, job, str(tmp_path / "saved"))
    assert refused.value.exit_code == REFUSED
    assert not (tmp_path / "saved").exists()


def test_a_savepoint_is_not_written_over(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """The existing savepoint is left unchanged."""
    claimed(spark, tmp_path / "checkpoint")
    (tmp_path / "saved" / "shop").mkdir(parents=True)
    with pytest.raises(SavepointError, match="already exists"):
        saved(spark, job, str(tmp_path / "saved"))
    assert not any((tmp_path / "saved" / "shop").iterdir())


def test_a_folder_that_will_not_do_is_a_savepoints(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """The message names the savepoint folder, and not the checkpoint folder of the job file."""
    claimed(spark, tmp_path / "checkpoint")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(
        CheckpointFolderError, match=rf"^the savepoint {file}/shop cannot be used: .*\nUse a savepoint folder"
    ):
        saved(spark, job, str(file))
    with pytest.raises(CheckpointFolderError, match=r"^the savepoint nosuch://save/shop cannot be used"):
        restore(spark, job, "nosuch://save", Works())


def test_a_savepoint_that_is_not_there_is_refused(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """The job is left without a checkpoint, so that it can start from another savepoint."""
    with pytest.raises(SavepointError, match="there is no savepoint of job shop"):
        restore(spark, job, str(tmp_path / "nowhere"), Works())
    assert not (tmp_path / "checkpoint").exists()


def test_a_savepoint_that_was_not_saved_to_its_end_is_refused(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """The savepoint's marker of an incomplete copy is found, and nothing is restored."""
    claimed(spark, tmp_path / "saved")
    (tmp_path / "saved" / "shop" / "rowkind.half-full").touch()
    with pytest.raises(SavepointError, match=r"the savepoint .* is incomplete"):
        restore(spark, job, str(tmp_path / "saved"), Works())
    assert not (tmp_path / "checkpoint").exists()
