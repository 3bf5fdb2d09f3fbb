"""Starts a local session in another thread, while the main thread loads modules, plans the job and checks its topics.

    main       launch Java, fork ─▶ load modules ─▶ plan ─▶ topics, schemas ─▶ take the session ─▶ start the queries
    session                         wait for Java ─▶ create the session, and warm up ─────────────┘

Java does most of the thread's work in its own process, so both proceed side by side if there are two cores.
"""

from __future__ import annotations

import threading
from functools import partial

from pyspark.sql import SparkSession

from rowkind.service.machine.budget import Budget
from rowkind.service.spark.session import launch_jvm, local_master, session

_begun: list[_EarlySession] = []


class _EarlySession(threading.Thread):
    """The thread that starts a session."""

    def __init__(self, name: str, parallelism: int, checkpoint: str, budget: Budget) -> None:
        super().__init__(name="session", daemon=True)
        master = local_master(parallelism)
        self._start = partial(
            session, name, master=master, parallelism=parallelism, checkpoint=checkpoint, budget=budget
        )
        self._outcome: SparkSession | Exception

    def run(self) -> None:
        try:
            self._outcome = self._start()
        except Exception as error:  # noqa: BLE001 - any error belongs to the caller that takes the session
            self._outcome = error

    def result(self) -> SparkSession:
        """Wait for the session and return it. Raises what `session` has raised."""
        self.join()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def begin(name: str, parallelism: int, checkpoint: str, budget: Budget) -> None:
    """Start the JVM and the session of a local job. The arguments are those of `session`.

    The JVM is started before this function returns, while this process has one thread and can fork.

    Raises MissingJavaError, SparkStartError or DownloadError.
    """
    launch_jvm(checkpoint, budget)
    _begun.append(_EarlySession(name, parallelism, checkpoint, budget))
    _begun[0].start()


def take() -> SparkSession | None:
    """Return the session that was begun, or None if there is none or it was already taken. Raises as `session` does."""
    return _begun.pop().result() if _begun else None
