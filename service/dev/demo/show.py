"""`rowkind dev demo JOB`: run a broker, a changing order book and the job, and show the results as they change.

The job runs in a separate process, exactly as a user runs it. The demo reads the results only from the sinks' topics.
At the end it checks them against the sinks' SQL in DuckDB.
"""

from __future__ import annotations

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

from rowkind.avro.registry import FolderRegistry
from rowkind.errors import RowkindError
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from rowkind.service.dev.demo.result import ResultTopic, RowValues, expected, picture
from rowkind.service.dev.demo.shop import Shop
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry

CHANGES = 24_000
SECONDS = 15.0
"""How long the order book takes for `CHANGES` changes, or one more, because an update is two changes."""

_SEED = 7
_UNHURRIED = 200.0
_PATIENCE_SECONDS = 120.0
_SHOWN_ROWS = 6


class DemoError(RowkindError):
    """The demo failed; the message says how."""


def demo(path: Path) -> None:
    """Run the demo with the job in `path`, which must read the tables `orders` and `payments`. Raises DemoError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-demo-")))
        _say("starting a Kafka broker (the first start downloads its jars, which takes about a minute)")
        servers = stack.enter_context(Broker()).bootstrap_servers
        settings = {"KAFKA": servers, "SCHEMAS": str(folder / "schemas"), "CHECKPOINT": str(folder / "checkpoint")}
        job = load(path, os.environ | settings)
        _say(f"starting the job with `rowkind run {path}`: Spark's JVM, its workers, the query")
        registry = FolderRegistry(folder / "schemas")
        events = list(order_book(CHANGES, _SEED))
        shop = Shop(job, registry)
        port = stack.enter_context(_running(path, settings))
        topics = [stack.enter_context(_reading(servers, sink.topic, registry)) for sink in job.sinks.values()]
        _say(f"the job is running; its status page is at http://localhost:{port}/, its metrics at /metrics")
        threading.Thread(target=shop.produce, args=(events, CHANGES / SECONDS), name="shop", daemon=True).start()
        right = [expected(events, sink.sql) for sink in job.sinks.values()]
        _watch(topics, shop, len(events), right)
        _verdict(job, topics, right)


def keep_shop(path: Path) -> None:
    """Change the order book of the job in `path` without end. The job itself runs elsewhere."""
    job = load(path)
    shop = Shop(job, open_registry(job))
    _say("the shop is open; Ctrl-C closes it")
    shop.produce(order_book(sys.maxsize, _SEED), _UNHURRIED)


@contextmanager
def _running(path: Path, settings: dict[str, str]) -> Iterator[int]:
    """Run `rowkind run` and yield its status port. At the end, stop it with SIGTERM, as a cluster would.

    Its log lines, except those of batches, are copied to standard error. Raises DemoError.
    """
    command = [sys.executable, "-m", "rowkind", "run", str(path), "--port", "0"]
    process = subprocess.Popen(  # noqa: S603 -- our own command
        command, env=os.environ | settings, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None, "it is piped"
    try:
        for line in process.stderr:
            sys.stderr.write(line)
            if "status, metrics and health at" in line:
                port = int(line.rpartition(":")[2])
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
        if " INFO batch " not in line:
            sys.stderr.write(line)


@contextmanager
def _reading(servers: str, topic: str, registry: FolderRegistry) -> Iterator[ResultTopic]:
    result = ResultTopic(servers, topic, registry)
    try:
        yield result
    finally:
        result.close()


def _watch(topics: Sequence[ResultTopic], shop: Shop, changes: int, right: Sequence[Counter[RowValues]]) -> None:
    """Show the results as they change, until they equal `right` or `_PATIENCE_SECONDS` have passed."""
    started = shown = time.monotonic()
    while (now := time.monotonic()) - started < _PATIENCE_SECONDS:
        came = sum(topic.poll() for topic in topics)
        if now - shown >= 3:
            shown = now
            _show(now - started, topics, shop, changes)
        if (
            not came
            and shop.closed.is_set()
            and all(topic.rows == rows for topic, rows in zip(topics, right, strict=True))
        ):
            break
    _show(time.monotonic() - started, topics, shop, changes)


def _show(seconds: float, topics: Sequence[ResultTopic], shop: Shop, changes: int) -> None:
    _say(f"\n{seconds:5.1f} s   {shop.sent:,} of {changes:,} changes produced")
    for line in picture(topics, _SHOWN_ROWS):
        _say(line)


def _verdict(job: Job, topics: Sequence[ResultTopic], right: Sequence[Counter[RowValues]]) -> None:
    for (name, sink), topic, rows in zip(job.sinks.items(), topics, right, strict=True):
        if topic.rows != rows:
            missing, extra = rows - topic.rows, topic.rows - rows
            raise DemoError(
                f"{sink.topic} differs from the result of {name}'s SQL in DuckDB. Missing rows: {missing.total():,}, "
                f"such as {next(iter(missing), None)}. Extra rows: {extra.total():,}, such as {next(iter(extra), None)}"
            )
        _say(
            f"{sink.topic}: all rows ({rows.total():,}) equal the result of the same SQL in DuckDB over the folded "
            "inputs"
        )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
