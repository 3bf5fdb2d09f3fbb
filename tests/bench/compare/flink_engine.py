"""Flink SQL: a cluster in one JVM, RocksDB with incremental checkpoints, stock connectors.

It runs with its defaults, or tuned: with mini-batches, and with the keys of append topics known to the planner. The
stock connector does not accept a key for an append topic. The rows therefore pass through a stream of Flink's internal
rows, whose schema may declare a key; no row is converted or copied. Windows need no keys and are not changed.

The jars come from Maven Central into a cache (`service.machine.jars`). The JVM is controlled through py4j, which is
part of pyspark, so that there is no Java code. Maven Central has no registry client for Flink. The five bytes of
Confluent's frame are therefore declared as five BOOLEAN columns before the table's columns, one byte each. Flink reads
them at the same cost as with a registry's format.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from rowkind.service.dev.jars import logging_jars
from rowkind.service.machine.jars import Module, fetched, java, spark_jars
from tests.bench.compare.engine import SINK_PARTITIONS, EngineError, Progress, Setting
from tests.bench.compare.queries import Query
from tests.bench.compare.tables import TABLES
from tests.bench.compare.workload import create_topic

VERSION = "2.2.0"
_MODULES: tuple[Module, ...] = (
    *(
        ("org.apache.flink", name, VERSION)
        for name in (
            "flink-clients",
            "flink-table-api-java-bridge",
            "flink-table-runtime",
            "flink-table-planner-loader",
            "flink-connector-base",
            "flink-statebackend-rocksdb",
            "flink-avro",
        )
    ),
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
)
_OPENED = "lang net io nio text time util util.concurrent util.concurrent.atomic util.concurrent.locks"
_HEAP = "-Xmx4g"
_TUNED = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "20000",
}
_FRAME = [f"frame_{number} BOOLEAN NOT NULL" for number in range(5)]


class Flink:
    """See `tests.bench.compare.engine.Engine`."""

    def __init__(self, *, transactional: bool = False, tuned: bool = False) -> None:
        self.framed = False
        self.transactional = transactional
        self.tuned = tuned
        self.name = "Flink, exactly once" if transactional else "Flink, tuned" if tuned else "Flink"

    def sql(self, query: Query) -> str:
        """Return the query, or its Flink-specific form."""
        return query.flink_sql or query.sql

    @contextmanager
    def run(self, setting: Setting) -> Iterator[RunningFlink]:
        """Start a JVM with a cluster and the query; end the JVM afterwards."""
        create_topic(setting.servers, setting.sink, SINK_PARTITIONS)
        path = os.pathsep.join([*logging_jars(), f"{fetched(f'Flink {VERSION}', _MODULES)}/*"])
        log = setting.folder / "log4j2.properties"
        log.write_text("rootLogger.level = off\n")
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED.split()]
        port, process = launch_gateway(
            classpath=path,
            jarpath=str(spark_jars("py4j-*.jar")[0]),
            java_path=java(),
            javaopts=[_HEAP, "-XX:+UseG1GC", f"-Dlog4j.configurationFile={log}", *opened],
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield RunningFlink(gateway.jvm, process.pid, self, setting)
        except Py4JJavaError as error:
            raise EngineError(f"Flink refuses: {str(error.java_exception)[:500]}") from None
        finally:
            gateway.close()
            process.kill()
            process.wait()


class RunningFlink:
    """See `tests.bench.compare.engine.Running`: the values come from the cluster's REST interface."""

    def __init__(self, jvm: Any, pid: int, engine: Flink, setting: Setting) -> None:
        self._pid = pid
        self._sources: dict[str, str] = {}
        settings = _settings(setting, tuned=engine.tuned)
        flink = jvm.org.apache.flink
        conf = flink.configuration.Configuration()
        for name, value in settings.items():
            conf.setString(name, value)
        cluster = flink.runtime.minicluster
        builder = cluster.MiniClusterConfiguration.Builder().setConfiguration(conf)
        self._cluster = cluster.MiniCluster(
            builder.setNumTaskManagers(1).setNumSlotsPerTaskManager(setting.parallelism).build()
        )
        self._cluster.start()
        address = self._cluster.getRestAddress().get()
        for name, value in (
            ("execution.target", "remote"),
            ("rest.address", address.getHost()),
            ("rest.port", str(address.getPort())),
        ):
            conf.setString(name, value)
        streams = flink.streaming.api.environment.StreamExecutionEnvironment(conf)
        environment = flink.table.api.bridge.java.StreamTableEnvironment.create(streams)
        for table in setting.query.tables:
            # In a stream of rows the watermark would no longer be per partition, and rows of slower partitions would be
            # late.
            keyed = setting.variant != "changelog" and TABLES[table].key and not setting.query.closes
            if engine.tuned and keyed:
                environment.executeSql(_source(setting, table, f"{table}_rows"))
                environment.createTemporaryView(table, _keyed(jvm, environment, setting, table))
            else:
                environment.executeSql(_source(setting, table, table))
        environment.executeSql(_sink(setting, transactional=engine.transactional))
        result = environment.executeSql(f"INSERT INTO `result` {engine.sql(setting.query)}")
        self._job = result.getJobClient().get().getJobID()
        self._url = f"{address}/jobs/{self._job}"

    @property
    def pid(self) -> int:
        """Return the JVM's process."""
        return self._pid

    def progress(self) -> Progress:
        """Return the rows that left the sources, before any aggregation; there are no batches."""
        answer = self._get("")
        if answer["state"] not in {"CREATED", "RUNNING"}:
            raise EngineError(f"Flink's job is {answer['state']}:\n{self._get('/exceptions')}"[:3000])
        return Progress(
            sum(self._sent_on(vertex["id"]) for vertex in answer["vertices"] if vertex["name"].startswith("Source"))
        )

    def state_bytes(self) -> int:
        """Return the size of a checkpoint taken now; increments share parts with earlier checkpoints."""
        self._cluster.triggerCheckpoint(self._job).get()
        return int(self._get("/checkpoints")["latest"]["completed"]["state_size"])

    def _sent_on(self, vertex: str) -> int:
        """Return how many rows a vertex's source has passed to its chained operators."""
        path = f"/vertices/{vertex}/subtasks/metrics"
        if vertex not in self._sources:
            names = [each["id"] for each in self._get(path)]
            found = [name for name in names if name.startswith("Source") and name.endswith(".numRecordsOut")]
            if not found:
                return 0
            (self._sources[vertex],) = found
        answer = self._get(f"{path}?get={quote(self._sources[vertex])}&agg=sum")
        return int(sum(each["sum"] for each in answer))

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}") as answer:
            return json.load(answer)


def _settings(setting: Setting, *, tuned: bool) -> dict[str, str]:
    checkpoints = Path(setting.folder, "checkpoints").as_uri()
    return {
        "parallelism.default": str(setting.parallelism),
        "pipeline.object-reuse": "true",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "1 s" if setting.quick else "10 s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": checkpoints,
        "taskmanager.memory.managed.size": "1024m",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        "restart-strategy.type": "disable",
        "metrics.fetcher.update-interval": "200",
        "rest.bind-port": "0",
        "rest.port": "0",
        "io.tmp.dirs": str(setting.folder),
        "table.local-time-zone": "UTC",
        **(_TUNED if tuned else {}),
        **setting.options,
    }


def _keyed(jvm: Any, environment: Any, setting: Setting, table: str) -> Any:
    """Return the rows of a table without a key as a table that declares one."""
    # The planner does not prune columns through the stream.
    key, every = TABLES[table].key, TABLES[table].columns
    columns = [name for name in every if name == key or re.search(rf"\b{name}\b", setting.query.sql)]
    rows = environment.sqlQuery(f"SELECT {', '.join(f'`{name}`' for name in columns)} FROM {table}_rows")
    fields = rows.getResolvedSchema().toPhysicalRowDataType()
    internal = jvm.java.lang.Class.forName("org.apache.flink.table.data.RowData")
    stream = environment.toDataStream(rows, fields.bridgedTo(internal))
    schema = jvm.org.apache.flink.table.api.Schema.newBuilder()
    for name, type_ in zip(columns, fields.getChildren(), strict=True):
        schema.column(name, type_)
    schema.primaryKey(jvm.java.util.List.of(key))
    if watermark := setting.query.watermark(TABLES[table]):
        schema.watermark("ts", watermark)
    return environment.fromDataStream(stream, schema.build())


def _source(setting: Setting, table: str, name: str) -> str:
    of = TABLES[table]
    keyed = setting.variant == "changelog"
    rows = [*_FRAME, *(f"`{column}` {_type(sql)}" for column, sql in of.columns.items())]
    if keyed:
        rows.append(f"PRIMARY KEY ({of.key}) NOT ENFORCED")
    if (watermark := setting.query.watermark(of)) and name == table:
        rows.append(f"WATERMARK FOR ts AS {watermark}")
    options = {
        "topic": setting.topics[table],
        "properties.bootstrap.servers": setting.servers,
        "properties.isolation.level": "read_committed",
    }
    if keyed:
        options |= {"connector": "upsert-kafka", "key.format": "avro", "value.format": "avro"}
    else:
        options |= {"connector": "kafka", "scan.startup.mode": "earliest-offset", "format": "avro"}
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(rows)}) WITH ({_options(options)})"


def _sink(setting: Setting, *, transactional: bool) -> str:
    rows = [f"`{name}` {_type(sql)}" for name, sql in setting.query.columns.items()]
    options = {
        "topic": setting.sink,
        "properties.bootstrap.servers": setting.servers,
        "properties.linger.ms": "5" if setting.quick else "50",
        "properties.batch.size": "262144",
    }
    if setting.query.key:
        rows.append(f"PRIMARY KEY ({', '.join(setting.query.key)}) NOT ENFORCED")
        options |= {"connector": "upsert-kafka", "key.format": "avro", "value.format": "avro"}
    else:
        options |= {"connector": "kafka", "format": "avro"}
    if transactional:
        options |= {
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": setting.sink,
            "properties.transaction.timeout.ms": "600000",
        }
    return f"CREATE TEMPORARY TABLE `result` ({', '.join(rows)}) WITH ({_options(options)})"


def _type(sql: str) -> str:
    return sql.replace("STRING", "VARCHAR(2147483647)")


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
