"""`rowkind dev`: a broker that keeps running, and a second one that must not harm it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from rowkind.service.machine.ports import free_port
from tests.run.process import Rowkind, until

pytestmark = pytest.mark.kafka


def test_a_second_broker_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    """A second broker on the same port or over the same folder is refused in one line; the first one keeps running."""
    port, data, own = free_port(), tmp_path / "data", ("--registry-port", "0")
    with Rowkind(tmp_path / "output", "dev", *own, "--port", str(port), "--data", str(data)) as first:
        until(lambda: "Ctrl-C stops them" in first.output, "a broker", lambda: first.error)
        for other, folder, told in (
            (port, tmp_path / "other", f"Port {port} is in use"),
            (free_port(), data, f"Another broker uses the topics in {data / 'kafka'}"),
        ):
            with Rowkind(tmp_path / "output", "dev", *own, "--port", str(other), "--data", str(folder)) as second:
                ended = second.ended(60)
            assert ended.code == 1, ended.error
            assert told in ended.error
            assert len(ended.error.splitlines()) == 1, ended.error
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        assert client.list_topics(timeout=20).brokers
        first.terminate()
        assert first.ended(60).code == 0
    with Rowkind(tmp_path / "output", "dev", *own, "--port", str(port), "--data", str(data)) as again:
        until(lambda: "Ctrl-C stops them" in again.output, "a broker", lambda: again.error)
