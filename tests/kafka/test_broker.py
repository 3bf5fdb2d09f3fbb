"""The embedded broker keeps its data if asked to, explains its errors, and never outlives its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev import jars
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.jars import BrokerStartError
from rowkind.service.machine.jars import DownloadError, MissingJavaError

pytestmark = pytest.mark.kafka

QUIET = {"log_level": 0}


def test_a_broker_with_a_data_folder_has_its_topics_again_after_a_restart(tmp_path: Path) -> None:
    """Topics created before a stop exist after the next start on the same port."""
    with Broker(tmp_path / "data") as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("kept", 2, 1)])["kept"].result()
        del admin
    with Broker(tmp_path / "data", port=first.port) as second:
        assert second.bootstrap_servers == first.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": second.bootstrap_servers, **QUIET})
        assert len(admin.list_topics(timeout=10).topics["kept"].partitions) == 2


def test_the_first_transaction_after_the_start_is_quick(broker: Broker) -> None:
    """The transaction coordinator is available when the fixture yields the broker."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "quick"})
    started = time.monotonic()
    producer.init_transactions(10)
    assert time.monotonic() - started < 3


def test_a_broker_does_not_outlive_an_owner_that_was_killed(tmp_path: Path) -> None:
    """SIGKILL to the process that started the broker ends the broker too."""
    script = "import sys, time; from pathlib import Path; from rowkind.service.dev.broker import Broker\n"
    script += "b = Broker(Path(sys.argv[1])); b.start(); print(b.port, flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _listens(port):
        assert time.monotonic() < deadline, "the broker is still there"
        time.sleep(0.1)


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java on the path, the message asks to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingJavaError, match="install a JRE 17"):
        Broker().start()


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Java that is too old is named as such, because the JVM's message about class file versions is no help."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "Error: LinkageError java.lang.UnsupportedClassVersionError: 61.0, 55.0"\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match=rf"{program} is too old: install a JRE 17 or newer"):
        Broker().start()


def test_a_failed_download_says_where_the_jars_could_be_put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the folder for the jars, and no partially filled cache is left behind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "_MODULE", ("org.apache.kafka", "kafka_2.13", "0.0.0-never-released"))
    with pytest.raises(DownloadError, match="copy the jars of a Kafka"):
        jars.kafka_jars()
    assert [path.suffix for path in (tmp_path / "rowkind").iterdir()] == [".lock"]


def test_a_port_in_use_is_a_clear_error_with_the_log(tmp_path: Path) -> None:
    """A broker that cannot bind its port ends, and the exception quotes the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(BrokerStartError, match="ddress already in use"):
            Broker(tmp_path, port=taken.getsockname()[1]).start()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
