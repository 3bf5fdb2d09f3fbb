"""Progress of a job's long-running work, such as copying a savepoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rowkind.service.monitoring.status import Work

Told = Callable[[int, int | None], None]
"""A function to report progress: how much is done, and the total or None if it is unknown."""


class Works:
    """A job's long-running work. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[int, Work] = {}
        self._begun = 0

    @contextmanager
    def work(self, what: str, unit: str) -> Iterator[Told]:
        """Track long-running work inside the context, and yield a function that reports its progress."""
        with self._lock:
            self._begun += 1
            number = self._begun
            self._works[number] = Work(what, unit, time.time(), 0, None)

        def told(done: int, total: int | None) -> None:
            with self._lock:
                self._works[number] = replace(self._works[number], done=done, total=total)

        try:
            yield told
        finally:
            with self._lock:
                del self._works[number]

    def under_way(self) -> tuple[Work, ...]:
        """Return the progress of all unfinished work, in the order in which it began."""
        with self._lock:
            return tuple(self._works.values())
