"""A scenario in which Kafka becomes unavailable under a running job and returns."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.checks import RETRACT_WITHOUT_KEY
from tests.chaos.stage import SLOW, Stage
from tests.run.process import get, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_broker_that_goes_away_inside_a_batch(tmp_path: Path, seed: int) -> None:
    """The job reports the outage, waits for at most `outage`, and continues by itself; no row is lost or doubled."""
    broker = Broker(tmp_path / "kafka")
    broker.start()
    try:
        with closing(Stage(broker.bootstrap_servers, tmp_path / "shop", seed, [RETRACT_WITHOUT_KEY])) as stage:
            stage.manipulate(0.5)
            with stage.job() as job:
                port = job.port
                # A value that was never requested is unknown while the broker is away.
                until(lambda: "rowkind_lag_seconds{" in get(port, "/metrics")[1], "a lag", lambda: job.error, SLOW)
                stage.inside_a_batch(job)
                broker.stop()
                # By then every client has reported the outage.
                until(lambda: "is waiting: " in get(port, "/readyz")[1], "a word of it", lambda: job.error, SLOW)
                assert get(port, "/readyz")[0] == 503
                assert get(port, "/healthz")[0] == 200
                until(lambda: _lag_seconds(port) > 1, "a lag that grows", lambda: job.error, SLOW)
                broker = Broker(tmp_path / "kafka", broker.port)
                broker.start()
                stage.manipulate(0.5)
                stage.catch_up(job)
                assert get(port, "/readyz")[0] == 200
                metrics = get(port, "/metrics")[1]
                assert re.search(r'^rowkind_outages_total\{name="[^"]+"\} 1.0$', metrics, re.MULTILINE)
                assert re.search(r'^rowkind_restarts_total\{name="[^"]+",query="main"\} 1.0$', metrics, re.MULTILINE)
                until(lambda: _lag_seconds(port) == 0, "no lag", lambda: job.error, SLOW)
                ended = stage.drain(job)
            assert ended.code == 0, ended.error
            said = [line.partition("Kafka ")[2] for line in ended.error.splitlines() if " Kafka " in line]
            assert "does not answer; waiting for it" in said[0], ended.error
            assert any(line.startswith("answers again, after") for line in said), ended.error
            assert "Traceback" not in ended.error
            assert len(ended.error.splitlines()) < 25, ended.error
            stage.validate()
            stage.change(kafka={"bootstrap.servers": broker.bootstrap_servers, "outage": "1s"})
            with stage.job() as job:
                stage.catch_up(job)
                broker.stop()
                ended = job.ended(SLOW)
            assert ended.code == 3, ended.error
            assert "Traceback" not in ended.error
    finally:
        broker.stop()


def _lag_seconds(port: int) -> float:
    """Return the lag of the partition that is furthest behind, from the Prometheus metrics."""
    found = re.findall(r"^rowkind_lag_seconds\{.*\} (.*)$", get(port, "/metrics")[1], re.MULTILINE)
    return max(map(float, found), default=0.0)
