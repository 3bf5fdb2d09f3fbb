"""pyspark's daemon, which forks the workers of tasks with what they need loaded (or `processes.forks` does).

A worker then starts in a tenth of a second instead of one, and shares with the others what never changes. None of them,
nor the writers that are forked from here too, hears SIGTERM: they end when Spark or their workers do. A process may
be forked while it has one thread only, and numpy and Arrow start some as they are loaded unless they are told
otherwise. Where they do all the same, pyspark's daemon takes its place, whose workers load everything themselves.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from socket import socket
from typing import Any

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""The environment in which libraries start no threads as they are loaded."""

# pyspark's worker itself asks for pandas.
LOADED = (
    "pandas",
    "pyspark.worker",
    "rowkind.service.query.source",
    "rowkind.service.query.spark_sink",
    "rowkind.service.kafka.reading",
    "rowkind.service.spark.processor",
)
"""The modules that workers need."""


def main() -> None:
    """Load, and serve until Spark closes standard input."""
    os.environ |= ONE_THREAD
    # Blocked and not ignored, because pyspark's daemon installs handlers for itself and for its workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for name in LOADED:
        import_module(name)
    if threads() != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606 -- Spark's own
    gc.collect()
    gc.freeze()
    producer_process = import_module("rowkind.service.kafka.producer_process")
    # Should it be refused its socket, the first task that writes says so.
    with suppress(producer_process.WriterLostError):
        producer_process.fork_on_demand()
    daemon: Any = import_module("pyspark.daemon")
    daemon.worker = _ending_quietly(daemon.worker)
    daemon.manager()


def _ending_quietly(work: Callable[[socket, bool], int]) -> Callable[[socket, bool], int]:
    """Pyspark's worker, to which a lost connection to Spark is an end like any other."""

    def worker(connection: socket, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return 1

    return worker


def threads() -> int:
    """How many threads this process has; 0 where there is no telling."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 0


if __name__ == "__main__":
    main()
