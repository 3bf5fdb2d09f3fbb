"""A checkpoint on S3 works like a checkpoint on a disk: kills, moves to other partitions, savepoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowkind.service.machine.jars import spark_jars
from rowkind.service.spark.s3 import HADOOP
from tests.chaos.stage import SLOW, Stage
from tests.cluster.s3 import S3

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A server whose credentials are in the environment."""
    with S3(tmp_path / "s3") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def test_a_checkpoint_on_s3_is_as_good_as_any(stage: Stage, s3: S3) -> None:
    """After kills, a change of parallelism and a start from a savepoint, all results are right."""
    stage.change(checkpoint=f"s3a://{s3.bucket}/jobs")
    stage.manipulate(0.3)
    with stage.job() as job:
        stage.catch_up(job)
        for _ in range(3):
            stage.happens(60)
            time.sleep(stage.random.uniform(0, 1))
        job.kill()
    stage.manipulate(0.2)
    stage.change(parallelism=1)
    with stage.job("--upgrade") as job:
        stage.catch_up(job)
        with stage.command("savepoint", f"s3a://{s3.bucket}/saved") as saving:
            assert saving.ended(SLOW).code == 0, saving.error
        stage.manipulate(0.2)
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    stage.change(checkpoint=f"s3a://{s3.bucket}/elsewhere")
    stage.manipulate(0.1)
    assert "the checkpoint is older than the results" in stage.runs("--from", f"s3a://{s3.bucket}/saved")
    stage.validate()


def test_hadoop_is_of_the_version_that_pyspark_has() -> None:
    """The parts of Hadoop must have the same version."""
    assert [path.name for path in spark_jars("hadoop-client-api-*.jar")] == [f"hadoop-client-api-{HADOOP}.jar"]
