"""Scenarios in which Kafka goes away under a running job."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.dev.broker import Broker
from tests.chaos.checks import CHECKS
from tests.chaos.stage import SLOW, Stage
from tests.run.process import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.xdist_group("chaos")]


def test_a_broker_that_is_restarted_inside_a_batch(tmp_path: Path, seed: int) -> None:
    """The job waits for the broker, or ends with a message and goes on at its next start; nothing is lost or twice."""
    broker = Broker(tmp_path / "kafka")
    broker.start()
    try:
        stage = Stage(broker.bootstrap_servers, tmp_path / "shop", "outage", seed)
        stage.manipulate(0.5)
        with stage.job() as job:
            stage.inside_a_batch(job, stage.random.choice(CHECKS).name)
            broker.stop()
            until(lambda: "does not answer" in job.error or not job.running, "a word of it", seconds=SLOW)
            broker = Broker(tmp_path / "kafka", broker.port)
            broker.start()
            stage.manipulate(0.5)
            if job.running:
                print("it waited")
            else:
                assert job.ended().code in (1, 3), job.error
                assert "Traceback" not in job.error
        with stage.job() as job:
            stage.catch_up(job)
            assert stage.drain(job).code == 0, job.error
        stage.validate()
        stage.close()
    finally:
        broker.stop()
