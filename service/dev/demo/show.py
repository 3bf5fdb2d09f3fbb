"""`rowkind dev demo JOB`: a broker, an order book that keeps changing, the job itself, and its results as they change.

The job runs as a process of its own, exactly as a user runs it. Everything that the demo knows of the results it
reads from the sinks' topics, and at the end it checks them against the sinks' SQL in DuckDB.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it is public all the same
from fastavro import parse_schema, schemaless_writer

from avro.registry import FolderRegistry
from avro.schema import Record
from operators.changes import RowKind
from service.dev.broker import Broker
from service.dev.demo.data import Event, order_book
from service.dev.demo.result import ResultTopic, Values, cell, expected
from service.job.load import load
from service.job.model import Job

CHANGES = 24_000
SECONDS = 15.0
"""How long the order book takes to change `CHANGES` times."""

_SEED = 7
_PATIENCE_SECONDS = 120.0
_PARTITIONS = 4
_SHOWN_ROWS = 6


class DemoError(Exception):
    """The demo did not end as it should; the message says what was seen."""


def demo(path: Path) -> None:
    """Run the demo with the job in `path`, which reads the tables `orders` and `payments`. Raises DemoError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-demo-")))
        _say("starting a Kafka broker (the first time its jars are fetched, about a minute)")
        servers = stack.enter_context(Broker()).bootstrap_servers
        settings = {"KAFKA": servers, "SCHEMAS": str(folder / "schemas"), "CHECKPOINT": str(folder / "checkpoint")}
        job = load(path, os.environ | settings)
        registry = FolderRegistry(folder / "schemas")
        producer = _Shop(servers, job, registry)
        port = stack.enter_context(_running(path, settings))
        topics = [stack.enter_context(_reading(servers, sink.topic, registry)) for sink in job.sinks.values()]
        _say(f"the job runs; its status page is at http://localhost:{port}/, its metrics at /metrics")
        producer.start()
        right = [expected(producer.events, sink.sql) for sink in job.sinks.values()]
        _watch(topics, producer, right)
        _verdict(job, topics, right)


class _Shop:
    """A shop's own systems: they know Kafka and Avro, and nothing of Rowkind but the row kind header."""

    def __init__(self, servers: str, job: Job, registry: FolderRegistry) -> None:
        self.events = list(order_book(CHANGES, _SEED))
        self.sent = 0
        self._topics = {name: table.topic for name, table in job.tables.items()}
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
        self._schemas = {}
        for name, table in job.tables.items():
            assert table.columns is not None, "the demo's tables declare their columns"
            record = Record.of(table.columns, name=name)
            schema_id = registry.register(f"{table.topic}-value", record)
            self._schemas[name] = (
                b"\0" + schema_id.to_bytes(4, "big"),
                parse_schema(json.loads(record.to_json())),
                table.primary_key,
            )
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics(
            [NewTopic(topic, _PARTITIONS, 1) for topic in self._topics.values()]
        ).values():
            future.result()

    def start(self) -> None:
        """Begin to produce, in a thread of its own."""
        threading.Thread(target=self._produce, name="shop", daemon=True).start()

    def done(self) -> bool:
        """Whether everything was produced."""
        return self.sent == len(self.events)

    def _produce(self) -> None:
        started = time.monotonic()
        for number, event in enumerate(self.events):
            ahead = number / len(self.events) * SECONDS - (time.monotonic() - started)
            if ahead > 0.05:
                self._producer.poll(ahead)
            self._send(event)
            self.sent = number + (number + 1 < len(self.events))
        self._producer.flush()
        self.sent = len(self.events)

    def _send(self, event: Event) -> None:
        prefix, schema, primary_key = self._schemas[event.table]
        value = io.BytesIO()
        value.write(prefix)
        schemaless_writer(value, schema, event.row)
        key = "/".join(str(event.row[column]) for column in primary_key)
        self._producer.produce(
            self._topics[event.table], value.getvalue(), key, headers=[("op", RowKind(event.kind).symbol.encode())]
        )
        self._producer.poll(0)


@contextmanager
def _running(path: Path, settings: dict[str, str]) -> Iterator[int]:
    """`rowkind run`, its log in ours; the port of its status page. Ended by SIGTERM, as a cluster would."""
    command = [sys.executable, "-m", "service.cli", "run", str(path), "--port", "0"]
    process = subprocess.Popen(command, env=os.environ | settings, stderr=subprocess.PIPE, text=True)  # noqa: S603 -- our own command
    assert process.stderr is not None, "it is piped"
    try:
        for line in process.stderr:
            sys.stderr.write(line)
            if "status, metrics and health on port" in line:
                port = int(line.split()[-1])
                threading.Thread(target=_copy, args=(process.stderr,), daemon=True).start()
                break
        else:
            raise DemoError(f"the job did not start (exit code {process.wait()})")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(_PATIENCE_SECONDS)
    if code:
        raise DemoError(f"the job ended with exit code {code}")


def _copy(lines: Any) -> None:
    for line in lines:
        sys.stderr.write(line)


@contextmanager
def _reading(servers: str, topic: str, registry: FolderRegistry) -> Iterator[ResultTopic]:
    result = ResultTopic(servers, topic, registry)
    try:
        yield result
    finally:
        result.close()


def _watch(topics: Sequence[ResultTopic], shop: _Shop, right: Sequence[Counter[Values]]) -> None:
    """Show the results as they change, until all are right or patience is at its end."""
    started = shown = time.monotonic()
    while (now := time.monotonic()) - started < _PATIENCE_SECONDS:
        came = sum(topic.poll() for topic in topics)
        if now - shown >= 3:
            shown = now
            _show(now - started, topics, shop)
        if not came and shop.done() and all(topic.rows == rows for topic, rows in zip(topics, right, strict=True)):
            break
    _show(time.monotonic() - started, topics, shop)


def _show(seconds: float, topics: Sequence[ResultTopic], shop: _Shop) -> None:
    _say(f"\n{seconds:5.1f} s   {shop.sent:,} of {len(shop.events):,} changes produced")
    for topic in topics:
        kinds = "  ".join(f"{kind} {count:,}" for kind, count in sorted(topic.kinds.items()))
        _say(f"  {topic.topic}: {topic.rows.total():,} rows now, after {kinds or 'nothing yet'}")
    for row in reversed(list(topics[0].latest)[-_SHOWN_ROWS:]):
        _say("    " + "".join(f"{cell(value):<14}" for value in row))


def _verdict(job: Job, topics: Sequence[ResultTopic], right: Sequence[Counter[Values]]) -> None:
    for (name, sink), topic, rows in zip(job.sinks.items(), topics, right, strict=True):
        if topic.rows != rows:
            missing, extra = rows - topic.rows, topic.rows - rows
            raise DemoError(
                f"{sink.topic} is not what the SQL of {name} gives in DuckDB: {missing.total()} rows are missing, such "
                f"as {next(iter(missing), None)}, and {extra.total()} are too many, such as {next(iter(extra), None)}"
            )
        _say(f"{sink.topic}: all {rows.total():,} rows are what the same SQL gives in DuckDB over the folded inputs")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
