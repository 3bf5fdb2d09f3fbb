"""A start from an older checkpoint keeps results correct, even if they depend on batch boundaries and batch times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.errors import REFUSED
from rowkind.service.dev.broker import Broker
from rowkind.service.query.errors import CheckpointMismatchError, ReplayError, RunError, StrangeCheckpointError
from tests.run.process import until
from tests.run.rewound import SINKS, SLOW, Rewound, state_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def job(spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewound:
    """A job that has not run yet."""
    # The session's Python is a stand-in, which a start checks before any worker exists.
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "nobody answers here")
    return Rewound(spark, broker.bootstrap_servers, tmp_path, f"rewound-{os.getpid()}-{tmp_path.name}")


def test_a_start_from_a_savepoint_goes_on_from_what_was_written(job: Rewound) -> None:
    """Late rows are late again, lookups return the same rows, and rows keep their windows and their order."""
    with job.running() as running:
        job.event(10)
        job.send("r", "+I", k=1, v="a")
        job.batch(running)
        job.event(200)
        job.batch(running)
        job.save("savepoint")
        job.event(300)
        job.send("o", "+I", id=1, k=1)
        job.send("clicks", "+I", id=1)
        job.send("notes", "+I", id=1, k=1, note="a")
        job.batch(running)
        job.event(20)
        job.send("r", "+U", k=1, v="b")
        job.send("clicks", "+I", id=2)
        job.send("notes", "+I", id=2, k=1, note="a")
        job.batch(running)
        job.event(310)
        job.send("o", "+I", id=2, k=1)
        job.send("clicks", "+I", id=3)
        job.send("notes", "+U", id=1, k=1, note="b")
        job.batch(running)
        job.event(320)
        job.send("o", "+I", id=3, k=1)
        job.send("clicks", "+I", id=4)
        job.send("notes", "+I", id=3, k=2, note="c")
        job.batch(running)
    before = {sink: job.written(sink) for sink in job.sinks}
    job.check()
    job.set_back("savepoint")
    job.event(330)
    job.send("o", "-D", id=1, k=1)
    job.send("clicks", "+I", id=5)
    job.send("notes", "-D", id=1, k=1)
    with job.running() as running:
        job.batch(running)
        kept = state_rows(running)
    for sink, changes in before.items():
        assert set(changes) <= set(job.written(sink)), f"what was written to {sink} stays"
    job.check()
    # No rows arrive. The reported state must be all of it, not only the state of shards that a row has touched.
    with job.running() as running:
        until(lambda: bool(state_rows(running)), "a report of its state", running.metrics, SLOW)
        # Operators that depend on time may change their state meanwhile.
        assert all(state_rows(running)[sink] == kept[sink] > 0 for sink in ("looked", "newest"))
    job.check()


def test_a_sink_that_is_written_at_least_once_is_replayed_too(job: Rewound) -> None:
    """Its batches are recorded too, and rows stay in the windows of processing time under which they were written."""
    job.sinks = {"windows": {**SINKS["windows"], "delivery": "at_least_once"}}
    job.write_job()
    with job.running() as running:
        job.send("clicks", "+I", id=1)
        job.batch(running)
        job.save("savepoint")
        for number in range(2, 5):
            job.send("clicks", "+I", id=number)
            job.batch(running)
    job.check()
    job.set_back("savepoint")
    with job.running() as running:
        job.send("clicks", "+I", id=5)
        job.batch(running)
    job.check()


def _refused(job: Rewound, error: type[RunError], words: str) -> None:
    """Check that a start is refused and nothing is written."""
    before = {sink: job.written(sink) for sink in job.sinks}
    with pytest.raises(error, match=words) as raised, job.running() as running:
        running.wait(SLOW)
    assert raised.value.exit_code == REFUSED
    assert {sink: job.written(sink) for sink in job.sinks} == before


def _rebuilt(job: Rewound, **options: bool) -> None:
    """Check that a start rebuilds the state and continues."""
    with job.running(**options) as running:
        until(lambda: running.wait(0.1) or running.ready, "the end of the rebuild", running.metrics, SLOW)
        job.event(400)
        job.send("clicks", "+I", id=7)
        job.batch(running)
    job.check()


def test_what_cannot_be_replayed_is_rebuilt_or_refused(job: Rewound, caplog: pytest.LogCaptureFixture) -> None:
    """State is rebuilt from complete topics; without them the start is refused, and `--reset-state` rebuilds it."""
    with job.running() as running:
        job.event(10)
        job.batch(running)
        job.save("savepoint")
        job.event(100)
        job.send("r", "+I", k=1, v="a")
        job.send("clicks", "+I", id=1)
        job.batch(running)
        job.event(20)
        job.send("o", "+I", id=1, k=1)
        job.send("notes", "+I", id=1, k=1, note="a")
        job.batch(running)
    job.check()
    # The savepoint is older than the oldest recorded batch.
    job.forget_batches()
    job.set_back("savepoint")
    caplog.clear()
    _rebuilt(job)
    assert "is no longer recorded; rebuilding the state from the topics" in caplog.text
    with job.running() as running:
        job.save("second")
        job.send("clicks", "+I", id=8)
        job.batch(running)
        job.send("clicks", "+I", id=9)
        job.batch(running)
    job.forget_batches()
    job.forget_rows("events", 1)
    job.set_back("second")
    _refused(job, ReplayError, r"batch \d+ is no longer recorded.*-events can be read again(.|\n)*--reset-state")
    _rebuilt(job, reset_state=True)
    # By now the results belong to another checkpoint.
    job.set_back("savepoint")
    _refused(job, StrangeCheckpointError, "--reset-state")
    _rebuilt(job, reset_state=True)
    job.write_job(shards=8)
    _refused(job, CheckpointMismatchError, "--upgrade")
    _rebuilt(job, upgrade=True)
    job.sinks = {
        **job.sinks,
        "total": {"mode": "retract", "sql": SINKS["total"]["sql"].replace("1 minute", "2 minutes")},
    }
    job.write_job(shards=8)
    _refused(job, CheckpointMismatchError, "--upgrade")
    _rebuilt(job, upgrade=True)


def test_a_savepoint_begins_a_job_that_has_changed(job: Rewound) -> None:
    """Sinks with unchanged SQL replay what was written, and the changed sink gets its new result."""
    with job.running() as running:
        job.event(10)
        job.send("r", "+I", k=1, v="a")
        job.batch(running)
        job.save("savepoint")
        job.event(100)
        job.send("o", "+I", id=1, k=1)
        job.send("clicks", "+I", id=1)
        job.batch(running)
        job.event(20)
        job.send("r", "+U", k=1, v="b")
        job.send("clicks", "+I", id=2)
        job.send("o", "+I", id=2, k=1)
        job.batch(running)
    before = job.written("looked")
    job.sinks = {
        **job.sinks,
        "total": {**SINKS["total"], "sql": SINKS["total"]["sql"].replace("1 minute", "2 minutes")},
    }
    job.set_back("savepoint")
    with job.running(upgrade=True) as running:
        until(lambda: running.wait(0.1) or running.ready, "the end of the rebuild", running.metrics, SLOW)
        job.event(110)
        job.send("o", "-D", id=1, k=1)
        job.batch(running)
    assert set(before) <= set(job.written("looked"))
    job.check()
