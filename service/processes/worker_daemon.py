"""pyspark's daemon for task workers, with the workers' modules preloaded (unless `processes.forks` provides them).

A worker then starts in 0.1 s instead of 1 s, and shares unchanged memory with other workers. The workers, and the
producer processes that are also forked here, ignore SIGTERM: they exit when Spark or their workers exit. A process may
fork only while it has one thread, but numpy and Arrow start threads on import unless configured otherwise. If there are
other threads anyway, pyspark's own daemon runs instead, and its workers load everything themselves.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from socket import socket
from typing import Any

from rowkind.service.machine.loading import without_collections
from rowkind.service.machine.threads import ONE_THREAD, threads

# pyspark's worker itself imports pandas.
LOADED = (
    "duckdb",
    "pandas",
    "pyspark.worker",
    "rowkind.service.query.source",
    "rowkind.service.query.spark_sink",
    "rowkind.service.kafka.reading",
    "rowkind.service.spark.processor",
)
"""The modules that workers need."""


def main() -> None:
    """Load the modules, and serve until Spark closes standard input."""
    os.environ |= ONE_THREAD
    # SIGTERM is blocked, not ignored, because pyspark's daemon installs handlers for itself and for its workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with without_collections():
        for name in LOADED:
            import_module(name)
    if threads() != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606 -- Spark's own
    producer_process = import_module("rowkind.service.kafka.producer_process")
    # If the socket's folder cannot be used, the first task that writes reports the error.
    with suppress(producer_process.WriterLostError):
        producer_process.fork_on_demand()
    daemon: Any = import_module("pyspark.daemon")
    daemon.worker = _ending_quietly(daemon.worker)
    daemon.manager()


def _ending_quietly(work: Callable[[socket, bool], int]) -> Callable[[socket, bool], int]:
    """Wrap pyspark's worker function, so that a lost connection to Spark is a normal exit."""

    def worker(connection: socket, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return 1

    return worker


if __name__ == "__main__":
    main()
