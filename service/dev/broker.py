"""A real Kafka broker (KRaft, one node) as a child process. It needs Java, but no Docker and no other installation.

It serves `rowkind dev`, the demo and the tests. When `start` returns, the broker answers and its transaction
coordinator is up, so that a first transaction does not fail with "Not coordinator". The child watches a pipe from this
process and ends when the pipe closes, so that it does not outlive a killed parent.
"""

from __future__ import annotations

import fcntl
import logging
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from rowkind.service.dev.jars import BrokerStartError, class_path
from rowkind.service.machine.jars import NO_FILES, java
from rowkind.service.machine.ports import free_port

_CLUSTER = "rowkind-dev-clusters-A"
_START_SECONDS = 90.0
_STOP_SECONDS = 20.0
_JAVA = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", NO_FILES]
_BRIEFLY = "-XX:TieredStopAtLevel=1"
"""Limits Java to its fast compiler. The broker starts in 8 s of CPU time, not 12, and idles at half the load."""

# A background shell watches the pipe on standard input. The foreground shell becomes Java, which keeps its pid.
_UNTIL_PIPE_CLOSES = 'exec 3<&0; (cat >/dev/null <&3; kill $$ 2>/dev/null) & exec "$@" 3<&- </dev/null'

log = logging.getLogger("rowkind.dev")


class Broker:
    """A broker on 127.0.0.1, as a context manager.

    - `data`: the folder that keeps the topics between runs; None for a temporary folder that is deleted at the end.
    - `port`: the port; None for a free one.
    - `settings`: additional or overriding broker properties. With these, several brokers can form a cluster.
    - `busy`: the broker will have a high load, so that Java's optimising compiler pays off.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str | int] | None = None,
        *,
        busy: bool = False,
    ) -> None:
        self._data = data
        self._java = _JAVA if busy else [*_JAVA, _BRIEFLY]
        self._settings = settings or {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self.port = port or free_port()

    @property
    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the broker's process, while it is running."""
        assert self._process is not None, "the broker is running"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker, and return when topics and transactions work. Raises BrokerStartError or DownloadError."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rowkind-broker-")
        folder = self._data or Path(self._temporary.name if self._temporary else "")
        folder.mkdir(parents=True, exist_ok=True)
        if _listens(self.port):
            raise BrokerStartError(
                f"Port {self.port} is in use: choose another one with --port, or stop the process that uses it."
            )
        self._take(folder)
        try:
            self._launch(folder)
            self._wait(folder / "broker.log")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker cleanly. Calling this twice is safe."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None, "the broker was started with a pipe"
            process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _take(self, folder: Path) -> None:
        """Lock the folder against other brokers until this broker has stopped, even if this process is killed."""
        self._lock = (folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.stop()
            raise BrokerStartError(
                f"Another broker uses the topics in {folder}: stop it, or choose another folder with --data."
            ) from None

    def _launch(self, folder: Path) -> None:
        program = [java(), *self._java, "-Dorg.apache.logging.log4j.level=WARN", "-cp", class_path()]
        settings = folder / "server.properties"
        said = {**_settings(folder / "log", self.port, free_port()), **self._settings}
        settings.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
        with (folder / "broker.log").open("wb") as output:
            if not (folder / "log" / "meta.properties").exists():
                # The cluster id is the same for all brokers, so that they can form one cluster.
                formatting = ["kafka.tools.StorageTool", "format", f"--cluster-id={_CLUSTER}", "-c", str(settings)]
                subprocess.run([*program, *formatting], stdout=output, stderr=output, check=False)  # noqa: S603 - ours too
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                ["/bin/sh", "-c", _UNTIL_PIPE_CLOSES, "broker", *program, "kafka.Kafka", str(settings)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[self._lock.fileno()] if self._lock else [],  # the broker keeps the lock too
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops the broker
            )

    def _wait(self, output: Path) -> None:
        assert self._process is not None, "the broker has been started"
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(self.port):
            if self._process.poll() is not None:
                if "UnsupportedClassVersionError" in (said := _tail(output)):
                    raise BrokerStartError(
                        f"{java()} is too old: install a JRE 17 or newer, or set JAVA_HOME to its folder."
                    )
                raise BrokerStartError(f"The broker exited while starting; its log says:\n{said}")
            if time.monotonic() > deadline:
                raise BrokerStartError(
                    f"The broker did not respond within {_START_SECONDS:.0f} s; its log says:\n{_tail(output)}"
                )
            time.sleep(0.05)
        config: dict[str, str | int | float | bool] = {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}
        try:
            AdminClient(config).list_topics(timeout=_START_SECONDS)
            warm_up = Producer({**config, "transactional.id": "rowkind-dev-warm-up"})
            warm_up.init_transactions(_START_SECONDS)
        except KafkaException as error:
            raise BrokerStartError(f"The broker does not respond: {error}; its log says:\n{_tail(output)}") from None


def _settings(logs: Path, port: int, controller: int) -> dict[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(logs),
        "auto.create.topics.enable": "false",
        # A broker that signs off can register again immediately. Otherwise, the controller waits for the end of the
        # former session, so that a broker with kept data answers 9 s later.
        "controlled.shutdown.enable": "true",
        "controlled.shutdown.max.retries": 1,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.backoff.ms": 1000,
        "log.retention.check.interval.ms": 1000,
        "log.initial.task.delay.ms": 500,
        "log.segment.delete.delay.ms": 1000,
    }


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tail(output: Path) -> str:
    return "\n".join(output.read_text(errors="replace").splitlines()[-15:])
