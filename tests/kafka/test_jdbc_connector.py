"""A result in PostgreSQL, written there by Kafka Connect with a JDBC sink connector, as users do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from rowkind.service.dev.jars import KAFKA, logging_jars
from rowkind.service.machine.jars import fetched, java
from rowkind.service.machine.ports import free_port
from tests.run.process import until
from tests.run.topic_job import TopicJob

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DEBEZIUM = "3.2.0.Final"
SINK = {
    "mode": "upsert",
    "key": "id",
    "partitions": 1,
    "connect_schema": True,
    "sql": (
        "SELECT id, k, CAST(id AS DECIMAL(10,2)) / 4 AS amount, DATE '2026-02-03' AS day, "
        "TIMESTAMP '2026-01-05 12:00:00.123' AS at, CONCAT('é', CAST(k AS STRING)) AS name, id > 1 AS many, "
        "id * 0.5e0 AS half, NULLIF(k, 0) AS kept FROM t"
    ),
}


@dataclass(frozen=True)
class Postgres:
    """A server that accepts any user on this machine."""

    programs: Path
    port: int

    def rows(self, sql: str) -> list[str]:
        """Return the rows of a query, columns separated by |; none if it fails, as before the table exists."""
        command = [str(self.programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        told = subprocess.run([*command, "-At", "-c", sql], capture_output=True, text=True, check=False, timeout=60)
        return told.stdout.splitlines()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A separate server, in a folder that is deleted with it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    programs, port = found[-1], free_port()
    # PostgreSQL refuses to run as root.
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="rowkind-postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = Path(folder, "data")
        made = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*made, "--locale=C.UTF-8"], user=user, check=True, capture_output=True, cwd=folder)
        settings = ("-c", f"port={port}", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off")
        with subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *settings],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            running = Postgres(programs, port)
            until(lambda: running.rows("SELECT 1") == ["1"], "an answer of PostgreSQL")
            yield running
            server.terminate()


@contextmanager
def connector(broker: Broker, folder: Path, topic: str, database: Postgres) -> Iterator[Path]:
    """Run Kafka Connect with one connector from the topic to the database; yield its log."""
    jars = fetched(
        f"Debezium JDBC {DEBEZIUM}",
        [
            ("org.apache.kafka", "connect-runtime", KAFKA),
            ("org.apache.kafka", "connect-json", KAFKA),
            ("io.debezium", "debezium-connector-jdbc", DEBEZIUM),
        ],
        without=["com.mysql", "com.oracle.database.jdbc", "com.microsoft.sqlserver", "org.mariadb.jdbc", "com.ibm.db2"],
        megabytes=45,
    )
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    worker = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.converter": json_converter,
        "value.converter": json_converter,
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "service_load",
    }
    sink = {
        "name": "result",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres",
        "connection.username": "postgres",
        "connection.password": "",
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "delete.enabled": "true",
        "schema.evolution": "basic",
        "collection.name.format": "result",
        "consumer.override.isolation.level": "read_committed",
    }
    files = [_properties(folder / "worker", worker), _properties(folder / "sink", sink)]
    log = folder / "connect.log"
    path = os.pathsep.join([*logging_jars(), f"{jars}/*"])
    program = [java(), "-Xmx256m", "-Dorg.apache.logging.log4j.level=WARN", "-cp", path]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*program, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)], stdout=output, stderr=output
        ) as connect,
    ):
        try:
            yield log
        finally:
            connect.terminate()


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{each}={value}\n" for each, value in settings.items()))
    return file


def test_a_jdbc_sink_connector_keeps_a_table_in_step(
    spark: SparkSession, broker: Broker, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the rows of the result, with Connect's types as PostgreSQL columns; deletes are applied."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "nobody answers here")
    job = TopicJob(spark, broker.bootstrap_servers, tmp_path, f"jdbc-{os.getpid()}", result=SINK)
    job.table |= {"mode": "upsert", "primary_key": "id"}
    job.write()
    job.upsert([1, 2, 3])
    job.runs(3)
    job.upsert([2], gone=True)
    job.runs(4)
    with connector(broker, tmp_path, job.topic("result"), postgres) as log:
        wanted = [
            "1|0|0.250000|2026-02-03|2026-01-05 12:00:00.123|é0|f|0.5|",
            "3|0|0.750000|2026-02-03|2026-01-05 12:00:00.123|é0|t|1.5|",
        ]
        until(
            lambda: postgres.rows("SELECT * FROM result ORDER BY id") == wanted,
            "the result in PostgreSQL",
            lambda: "\n".join([*postgres.rows("SELECT * FROM result"), log.read_text()[-8000:]]),
        )
        types = "SELECT data_type FROM information_schema.columns WHERE table_name = 'result' ORDER BY ordinal_position"
        assert postgres.rows(types)[2:5] == ["numeric", "date", "timestamp without time zone"]
