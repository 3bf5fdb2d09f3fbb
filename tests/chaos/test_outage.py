"""A scenario in which Kafka goes away under a running job, and comes back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.checks import RETRACT_WITHOUT_KEY
from tests.chaos.stage import SLOW, Stage
from tests.run.process import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_broker_that_is_restarted_inside_a_batch(tmp_path: Path, seed: int) -> None:
    """The job waits for the broker, or ends with a message and goes on at its next start; nothing is lost or twice."""
    broker = Broker(tmp_path / "kafka")
    broker.start()
    try:
        with closing(Stage(broker.bootstrap_servers, tmp_path / "shop", seed, [RETRACT_WITHOUT_KEY])) as stage:
            stage.manipulate(0.5)
            with stage.job() as job:
                stage.inside_a_batch(job)
                broker.stop()
                until(lambda: "does not answer" in job.error or not job.running, "a word of it", seconds=SLOW)
                broker = Broker(tmp_path / "kafka", broker.port)
                broker.start()
                stage.manipulate(0.5)
                stage.catch_up(job, may_end=True)
                if job.running:
                    assert "answers again" in job.error
                    assert stage.drain(job).code == 0, job.error
                assert "Traceback" not in job.error
                assert len(job.error.splitlines()) < 25, job.error
                code = job.ended().code
            if code:
                assert code in (1, 3)
                with stage.job() as job:
                    stage.catch_up(job)
                    assert stage.drain(job).code == 0, job.error
            stage.validate()
    finally:
        broker.stop()
