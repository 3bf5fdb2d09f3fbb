"""Result topics that lose rows, and a lost progress topic: both are noticed at the start and while the job runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rowkind.errors import REFUSED
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import progress
from rowkind.service.kafka.errors import ChangelogError, FencedError
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.transaction import TransactionalWriter
from rowkind.service.library.running_job import StartedJob
from rowkind.service.query.errors import LostProgressError, LostResultError
from tests.kafka.sinks import committed
from tests.run.process import until
from tests.run.topic_job import COUNTS, LATEST, ROWS, SLOW, TopicJob

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

MakeJob = Callable[..., TopicJob]


@pytest.fixture
def make_job(spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeJob:
    """Return a function that creates a job, which has not run yet."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "nobody answers here")
    name = f"written-{os.getpid()}-{tmp_path.name}"
    return lambda **sinks: TopicJob(spark, broker.bootstrap_servers, tmp_path, name, **sinks)


HARMS: dict[str, tuple[Any, Callable[[TopicJob], object], str]] = {
    "deleted": (COUNTS, lambda job: job.delete(job.topic("result")), "was deleted"),
    "made anew": (COUNTS, lambda job: job.make_anew(job.topic("result")), "was deleted and re-created"),
    "made anew, append": (ROWS, lambda job: job.make_anew(job.topic("result")), "was deleted and re-created"),
    "grown": (LATEST, lambda job: job.grow(job.topic("result"), 5), "has 5 partitions, not 1"),
    "shortened": (COUNTS, lambda job: job.shorten(job.topic("result"), 3), "begins at offset 3, not 0"),
}


@pytest.mark.parametrize("what", HARMS)
def test_a_topic_that_lost_rows_under_a_job_that_stands_still(make_job: MakeJob, what: str) -> None:
    """The start is refused with the cause and two remedies; `--upgrade` writes the missing rows."""
    sink, harm, told = HARMS[what]
    job = make_job(result=sink)
    job.send(50)
    job.runs()
    harm(job)
    job.send(10)
    with pytest.raises(LostResultError, match=f"topic {job.topic('result')} (was|has) ") as refused:
        job.runs()
    # If the job may create the topic, it does so before the start compares the topic with its recorded state.
    assert told in str(refused.value) or what == "deleted"
    assert refused.value.exit_code == REFUSED
    assert "--upgrade" in str(refused.value)
    assert "on_lost: rebuild" in str(refused.value)
    job.runs(upgrade=True)
    assert job.rows("result") == job.right("result")
    job.send(10)
    job.runs()
    assert job.rows("result") == job.right("result")


@pytest.mark.parametrize("what", ["deleted", "made anew", "grown", "shortened"])
def test_a_topic_that_loses_rows_under_a_running_job(make_job: MakeJob, what: str) -> None:
    """The job stops and says why; with `on_lost: rebuild` it rebuilds the query and continues."""
    sink, harm, told = HARMS[what]
    job = make_job(result=sink)
    job.send(50)
    with pytest.raises(LostResultError, match=told):
        ends(job, harm)
    job.sinks = {"result": {**sink, "on_lost": "rebuild"}}
    job.write()
    with job.running() as running:
        job.send(10)
        job.reads(running)
        assert job.rows("result") == job.right("result")
        harm(job) if what != "grown" else job.grow(job.topic("result"), 7)
        until(lambda: _is_right(job, running), "the result", running.metrics, SLOW)


@pytest.mark.parametrize("runs", [True, False])
def test_a_progress_topic_that_is_lost(make_job: MakeJob, runs: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the job runs or not, its state is rebuilt, so that no row is duplicated or missing."""
    job = make_job(result=COUNTS)
    job.send(50)
    with job.running() as running:
        job.reads(running)
        if runs:
            job.delete(job.progress)
            job.send(10)
            until(lambda: _is_right(job, running), "the result", running.metrics, SLOW)
            job.reads(running)
    if not runs:
        job.delete(job.progress)
        job.send(10)
        job.runs()
    assert f"the progress topic {job.progress} was deleted" in caplog.text
    assert job.rows("result") == job.right("result")


def test_a_progress_topic_that_a_task_of_the_old_run_finds_again(make_job: MakeJob) -> None:
    """The old run's name in the new topic must not count as the name of a later run, which would end the job."""
    job = make_job(result=COUNTS)
    job.send(50)
    for _ in range(2):
        job.runs()
    with job.running() as running:
        job.reads(running)
        old = progress.read(job.kafka, job.progress, 0)
        assert old is not None
        job.delete(job.progress)
        until(lambda: _claimed_after(job, old.run), "the new run", running.metrics, SLOW)
        until(lambda: _written_again(job, old.run), "the trace of the old run")
        job.send(10)
        job.reads(running)
    assert job.rows("result") == job.right("result")


def _claimed_after(job: TopicJob, run: str) -> bool:
    """Return whether another run owns the checkpoint and has looked for traces of earlier runs."""
    folder = job.folder / "checkpoint" / job.name / "main"
    runs = [each.name.removeprefix("rowkind.run.") for each in folder.glob("rowkind.run.*")]
    return (folder / "rowkind.json").exists() and runs not in ([], [run])


def _written_again(job: TopicJob, run: str) -> bool:
    """Return whether a task of the run has written to the progress topic, or is fenced."""
    spec = WriterSpec(job.name, "main", {}, job.kafka, job.progress, run=run)
    try:
        TransactionalWriter(spec, 0).sign()
    except FencedError:
        return True
    except ChangelogError:
        return False
    return True


def test_a_progress_topic_that_is_lost_where_sources_are_not_whole(make_job: MakeJob) -> None:
    """A rebuild would lack rows, so the start is refused; `--reset-state` rebuilds on request."""
    job = make_job(result=COUNTS)
    job.send(50)
    job.runs()
    job.make_anew(job.progress, 2)
    job.shorten(job.source, 5)
    with pytest.raises(LostProgressError, match=f"{job.progress} was deleted and re-created, and not all records"):
        job.runs()
    job.runs(reset_state=True)
    del job.sent[:5]
    assert job.rows("result") == job.right("result")


def test_a_topic_that_may_stay_as_it_is(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    """`on_lost: ignore` continues with a warning; an append topic may lose its first records, and may grow."""
    job = make_job(result={**COUNTS, "on_lost": "ignore"}, rows=ROWS)
    job.send(50)
    job.runs()
    job.shorten(job.topic("rows"), 20)
    job.grow(job.topic("rows"), 2)
    job.make_anew(job.topic("result"))
    job.send(5)
    job.runs()
    assert (
        f"topic {job.topic('result')} was deleted and re-created; the topic is left as it is (`on_lost: ignore`)"
        in caplog.text
    )
    assert job.topic("rows") not in caplog.text.replace("writing to topic", "").replace("created topic", "")
    caplog.clear()
    job.send(5)
    job.runs()
    assert "stays as it is" not in caplog.text


def test_deletes_that_compaction_took_while_the_job_stood_still(
    make_job: MakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    """The start warns with a remedy and a metric, and `--reset-state` retracts the rows whose deletes were lost."""
    job = make_job(result={**LATEST, "key": "id", "sql": "SELECT id, k FROM t"})
    job.table |= {"mode": "upsert", "primary_key": "id"}
    job.write()
    settings = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
    job.make_anew(job.source, **settings, **{"cleanup.policy": "compact", "delete.retention.ms": "1000"})
    job.upsert(range(30))
    job.runs(30)
    assert "delete.retention.ms" not in caplog.text
    job.upsert(range(10, 30), gone=True)

    def compacted() -> bool:
        # Kafka compacts only closed segments, and closes a segment when a record arrives after the segment's time.
        job.upsert([0])
        return all(each.value() is not None for each in committed(job.kafka, job.source))

    until(compacted, "the end of all tombstones", seconds=SLOW)
    with job.running() as running:
        job.reads(running, job.upserts)
        wanted = f'reason="deletes",topic="{job.source}"}} 1.0'
        assert re.search(rf"^rowkind_incomplete_topic\{{.*{wanted}$", running.metrics(), re.MULTILINE)
        assert any("delete.retention.ms" in each for each in running.status().warnings)
    assert "--reset-state" in caplog.text
    assert len(job.rows("result")) == 30
    job.runs(job.upserts, reset_state=True)
    assert len(job.rows("result")) == 10
    caplog.clear()
    job.runs(job.upserts)
    assert "delete.retention.ms" not in caplog.text


def ends(job: TopicJob, harm: Callable[[TopicJob], object]) -> None:
    """Run the job until it ends by itself because of the harm done to its topics."""
    with job.running() as running:
        job.reads(running)
        harm(job)
        until(lambda: running.wait(0.1), "the end of the job", running.metrics, SLOW)


def _is_right(job: TopicJob, running: StartedJob) -> bool:
    running.wait(0.1)
    there = job.topic("result") in job.admin.list_topics(timeout=10).topics
    return there and job.rows("result") == job.right("result")
