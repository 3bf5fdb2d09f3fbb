"""A Kafka Connect worker with Debezium's connectors, controlled through its REST API."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowkind.service.dev.broker import Broker
from rowkind.service.dev.jars import KAFKA, logging_jars
from rowkind.service.machine.jars import fetched, java
from rowkind.service.machine.ports import free_port
from tests.run.process import until

DEBEZIUM = "3.2.0.Final"
_UNUSED = ("com.mysql", "com.oracle.database.jdbc", "com.microsoft.sqlserver", "org.mariadb.jdbc", "com.ibm.db2")
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Connect:
    """A running worker."""

    url: str
    log: Path

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request until the worker has done it. Returns the answer, None if it is empty."""
        found: list[Any] = []

        def done() -> bool:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    found.append(json.loads(answer.read() or b"null"))
            except OSError:
                return False
            return True

        until(done, f"{method} {path}", self.said)
        return found[0]

    def until_state(self, name: str, state: str) -> None:
        """Wait until a connector and its tasks are in this state."""

        def reached() -> bool:
            found = self.ask("GET", f"connectors/{name}/status")
            return {each["state"] for each in (found["connector"], *found["tasks"])} == {state}

        until(reached, f"connector {name} {state}", self.said)

    def said(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-8000:]


@contextmanager
def connect_worker(broker: Broker, folder: Path) -> Iterator[Connect]:
    """Run a standalone worker with Debezium's connectors for PostgreSQL and JDBC. Its files are in the folder."""
    jars = fetched(
        f"Debezium connectors {DEBEZIUM}",
        [
            ("org.apache.kafka", "connect-runtime", KAFKA),
            ("org.apache.kafka", "connect-json", KAFKA),
            ("io.debezium", "debezium-connector-postgres", DEBEZIUM),
            ("io.debezium", "debezium-connector-jdbc", DEBEZIUM),
        ],
        without=_UNUSED,
        megabytes=60,
    )
    url = f"http://127.0.0.1:{free_port()}"
    worker = folder / "worker.properties"
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.converter": _JSON,
        "value.converter": _JSON,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "listeners": url,
        "plugin.discovery": "service_load",
    }
    worker.write_text("".join(f"{each}={value}\n" for each, value in settings.items()))
    log = folder / "connect.log"
    program = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.timezone=UTC"]
    program += ["-Dorg.apache.logging.log4j.level=WARN", "-cp", os.pathsep.join([*logging_jars(), f"{jars}/*"])]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*program, "org.apache.kafka.connect.cli.ConnectStandalone", str(worker)], stdout=output, stderr=output
        ) as process,
    ):
        running = Connect(url, log)
        try:
            yield running
        finally:
            process.terminate()
