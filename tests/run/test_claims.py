"""Two jobs that write to one topic: the second is refused until the first releases the topic."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.errors import REFUSED
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.errors import ClaimedTopicsError
from tests.run.process import Rowkind
from tests.run.topic_job import COUNTS, LATEST, TopicJob

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def job(spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicJob:
    """A job that has not run yet."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "nobody answers here")
    return TopicJob(spark, broker.bootstrap_servers, tmp_path, f"claims-{os.getpid()}-{tmp_path.name}", counts=COUNTS)


def test_the_topic_of_another_job_is_refused_until_it_is_released(job: TopicJob) -> None:
    """The topic is refused whether the other job runs or not, and after `topics release` the other job is refused."""
    other = f"{job.name}-2"
    file = job.write(other)
    job.send(10)
    with job.running() as first:
        job.reads(first)
        with pytest.raises(
            ClaimedTopicsError, match=f"{job.topic('counts')}: already written by job {job.name}"
        ) as refused:
            job.runs(job=other)
        assert refused.value.exit_code == REFUSED
        assert "rowkind topics release" in str(refused.value)
    with pytest.raises(ClaimedTopicsError):
        job.runs(job=other, reset_state=True)
    with Rowkind(job.folder / "output", "topics", "release", str(file)) as release:
        assert release.ended().output == f"took over topic {job.topic('counts')} from job {job.name}\n", release.error
    job.send(10)
    job.runs(job=other, upgrade=True)
    assert job.rows("counts") == job.right("counts")
    with pytest.raises(ClaimedTopicsError, match=f"already written by job {other}"):
        job.runs()


def test_a_topic_is_free_when_its_sink_is_gone_or_has_another_topic(job: TopicJob) -> None:
    """The first start without the sink releases its topic, even if the sink is written at least once."""
    job.sinks |= {"latest": {**LATEST, "delivery": "at_least_once", "isolated": True}}
    job.write()
    job.send(10)
    job.runs()
    latest, counts = job.sinks.pop("latest"), dict(job.sinks)
    job.sinks = {"latest": latest}
    other = f"{job.name}-2"
    job.write(other)
    with pytest.raises(ClaimedTopicsError, match=f"{job.topic('latest')}: already written by job {job.name}"):
        job.runs(job=other)
    job.sinks = counts
    job.write()
    job.runs()
    job.runs(job=other, upgrade=True)
    job.sinks = {"latest": latest}
    assert job.rows("latest") == job.right("latest")
