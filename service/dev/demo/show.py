"""`rowkind demo`: run a broker, changing orders and payments and a job over them, and show the results as they change.

The job is the example orders-payments. It runs in a separate process, exactly as a user runs it. The demo reads the
results only from the sinks' topics, and checks them against the sinks' SQL in DuckDB. Everything that the demo writes
is in one temporary folder, except for the broker's jars, which stay in the user's cache.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from rowkind.avro.registry import FolderRegistry
from rowkind.cache import NO_NEW_ARCHIVE
from rowkind.errors import RowkindError
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from rowkind.service.dev.demo.result import ResultTopic, RowValues, expected, picture
from rowkind.service.dev.demo.shop import Shop
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.machine.jars import java

CHANGES = 24_000
SECONDS = 15.0
"""How long the order book takes for `CHANGES` changes, or one more, because an update is two changes."""

_SEED = 7
_UNHURRIED = 200.0
_PATIENCE_SECONDS = 120.0
SHOWN_ROWS = 8
"""The latest rows of the first result. With these, the demo fits a terminal of 80 columns and 24 lines."""

Draw = Callable[[list[str]], None]
"""Shows lines in place of those shown before, or below them."""


class DemoError(RowkindError):
    """The demo failed; the message says how."""


def demo(view: AbstractContextManager[Draw], every: float, *, stays: bool) -> None:
    """Run the demo, and show its results in the view `every` so many seconds.

    It ends when the results equal those of DuckDB. If it `stays`, rows keep changing until SIGINT, SIGTERM or SIGHUP.
    Either way, it removes everything that it has started or written. Raises DemoError, BrokerStartError, DownloadError
    and MissingJavaError.
    """
    java()
    with _until_a_signal(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-demo-")))
        path = stack.enter_context(as_file(files("rowkind") / "examples" / "orders-payments" / "job.yaml"))
        _say("Starting a Kafka broker.")
        servers = stack.enter_context(Broker(folder / "kafka")).bootstrap_servers
        settings = {"KAFKA": servers, "SCHEMAS": str(folder / "schemas"), "CHECKPOINT": str(folder / "checkpoint")}
        job, registry = load(path, os.environ | settings), FolderRegistry(folder / "schemas")
        shop = Shop(job, registry)
        _say(f"Starting the job {job.name}.")
        process, port = stack.enter_context(_running(path, folder, settings))
        _say(f"The job is running. Its status page is http://localhost:{port}/")
        topics = [
            stack.enter_context(closing(ResultTopic(servers, each.topic, registry))) for each in job.sinks.values()
        ]
        show = _Show(process, port, topics, [shop], stack.enter_context(view), every)
        events = list(order_book(CHANGES, _SEED))
        threading.Thread(target=shop.produce, args=(events, CHANGES / SECONDS), name="shop", daemon=True).start()
        right = [expected(events, sink.sql) for sink in job.sinks.values()]
        show.until(lambda: shop.closed.is_set() and [topic.rows for topic in topics] == right, _PATIENCE_SECONDS)
        _verdict(job, topics, right)
        if stays:
            show.shops.append(Shop(job, registry))
            threading.Thread(target=_keep_open, args=(show.shops[-1],), name="shop", daemon=True).start()
            show.until(lambda: False, float("inf"))


def keep_shop(path: Path) -> None:
    """Change the order book of the job in `path` without end. The job itself runs elsewhere."""
    job = load(path)
    shop = Shop(job, open_registry(job))
    _say("the shop is open; Ctrl-C closes it")
    _keep_open(shop)


def _keep_open(shop: Shop) -> None:
    shop.produce(order_book(sys.maxsize, _SEED), _UNHURRIED)


@contextmanager
def _until_a_signal() -> Iterator[None]:
    """End the block at the first SIGINT, SIGTERM or SIGHUP, which is not an error. Later ones change nothing."""
    signalled = False

    def interrupt(*_: object) -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        yield
    except (KeyboardInterrupt, Exception):
        # A library may turn an interrupt into its own error, and a terminal that was closed cannot be written to.
        if not signalled:
            raise


@contextmanager
def _running(path: Path, folder: Path, settings: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `rowkind run`, with its temporary files in `folder`, and yield its process and its status port.

    At the end, stop it with SIGTERM, as a cluster would, and wait until its child processes have ended too. Its log
    lines, except those of level INFO, are copied to standard error. Raises DemoError.
    """
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", "rowkind", "run", str(path), "--port", "0", "--log", "lines"],
        cwd=folder,
        env=os.environ | settings | {"TMPDIR": str(folder), NO_NEW_ARCHIVE: "yes"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C reaches only this process, which then stops the job
    )
    ports: SimpleQueue[int | None] = SimpleQueue()
    copy = threading.Thread(target=_copy, args=(process.stdout, ports), daemon=True)
    copy.start()
    try:
        port = ports.get()
        if port is None:
            raise DemoError(f"the job did not start (exit code {process.wait()})")
        yield process, port
    finally:
        process.terminate()
        with suppress(OSError):
            _say("Stopping the job and the broker.")
        code = process.wait(_PATIENCE_SECONDS)
        copy.join(_PATIENCE_SECONDS)
        _wait_for_java(folder)
    if code:
        raise DemoError(f"the job ended with exit code {code}")


def _wait_for_java(folder: Path) -> None:
    """Wait until Java has ended, because its folder of temporary files is removed then."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(folder.glob("rowkind-*/alive")) and time.monotonic() < deadline:
        time.sleep(0.1)


def _copy(lines: IO[str], ports: SimpleQueue[int | None]) -> None:
    for line in lines:
        if "status, metrics and health at" in line:
            ports.put(int(line.rpartition(":")[2]))
        elif " INFO " not in line:
            sys.stderr.write(line)
    ports.put(None)


@dataclass
class _Show:
    """What the demo shows: the job's results in `topics`, and how many changes the `shops` have produced."""

    process: subprocess.Popen[str]
    port: int
    topics: Sequence[ResultTopic]
    shops: list[Shop]
    draw: Draw
    every: float

    def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Read and show the results until `done`, or until this many seconds have passed. Raises DemoError."""
        started, shown = time.monotonic(), 0.0
        while (now := time.monotonic()) - started < seconds:
            came = sum(topic.poll() for topic in self.topics)
            if self.process.poll() is not None:
                raise DemoError(f"the job ended with exit code {self.process.returncode}")
            if now - shown >= self.every:
                shown = now
                self._show()
            if not came and done():
                break
        self._show()

    def _show(self) -> None:
        self.draw(
            [
                f"http://localhost:{self.port}/ shows the job. Ctrl-C ends the demo.",
                f"{sum(shop.sent for shop in self.shops):,} changes of orders and payments produced",
                *picture(self.topics, SHOWN_ROWS),
            ]
        )


def _verdict(job: Job, topics: Sequence[ResultTopic], right: Sequence[Counter[RowValues]]) -> None:
    for (name, sink), topic, rows in zip(job.sinks.items(), topics, right, strict=True):
        if topic.rows != rows:
            missing, extra = rows - topic.rows, topic.rows - rows
            raise DemoError(
                f"{sink.topic} differs from the result of {name}'s SQL in DuckDB. Missing rows: {missing.total():,}, "
                f"such as {next(iter(missing), None)}. Extra rows: {extra.total():,}, such as {next(iter(extra), None)}"
            )
        _say(f"{sink.topic}: all {rows.total():,} rows equal the result of the same SQL in DuckDB.")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
