"""Long work of a job that is under way, such as a savepoint that is copied: how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rowkind.service.monitoring.status import Work

Told = Callable[[int, int | None], None]
"""Called with how much is done, and of how much, None where nobody knows."""


class Works:
    """All that is under way; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[int, Work] = {}
        self._begun = 0

    @contextmanager
    def work(self, what: str, unit: str) -> Iterator[Told]:
        """Something takes long inside, and tells how far it is."""
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
        """How far everything is that has been begun and has not ended, in that order."""
        with self._lock:
            return tuple(self._works.values())
