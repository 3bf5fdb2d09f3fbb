"""A job whose batches have a minimum interval."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from tests.run.process import until
from tests.run.topic_job import COUNTS, SLOW, TopicJob

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_changes_wait_for_the_interval_and_a_stop_does_not(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's first batch begins at once. Later changes wait, are counted as lag, and are read by the next run."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "no process answers")
    job = TopicJob(spark, broker.bootstrap_servers, tmp_path, f"interval-{os.getpid()}", counts=COUNTS)
    job.write(batch={"min_interval": "1h"})
    job.send(10)
    with job.running() as running:
        job.reads(running)
        first = job.rows("counts")
        job.send(5)

        def behind() -> bool:
            running.wait(0.1)
            return re.search(r"^rowkind_lag_rows\{.*\} 5\.0$", running.metrics(), re.MULTILINE) is not None

        until(behind, "a lag of 5 rows", running.metrics, SLOW)
    assert job.rows("counts") == first
    job.runs()
    assert job.rows("counts") == job.right("counts") != first
