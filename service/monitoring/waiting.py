"""Track and log a job's waits for external systems: Kafka, a topic, the registry, the checkpoint.

A wait is logged after 5 s, then every 30 s, and once more when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from rowkind.avro.errors import RegistryUnreachableError
from rowkind.avro.registry import listeners
from rowkind.service.machine.periodic import meanwhile
from rowkind.service.machine.signals import AskedToStop

Sought = TypeVar("Sought")

System = Literal["kafka", "registry", "checkpoint", "topic"]
SYSTEMS: tuple[System, ...] = get_args(System)

FIRST_SECONDS = 4.5
"""Less than 5 s, so that a check every `_LOOK_SECONDS` logs the wait within 5 s."""

_AGAIN_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 1.0

log = logging.getLogger("rowkind")


@dataclass
class _Wait:
    """A wait for `what`. `since` and `tell`, the time of the next log line, are monotonic times in seconds."""

    what: str
    since: float
    tell: float
    why: str = ""
    told: bool = False


class Waiting:
    """A job's current waits. Methods may be called from any thread. `before`: called before a wait is first logged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waits: dict[System, _Wait] = {}
        self.before: Callable[[], None] = lambda: None

    @contextmanager
    def on(self, system: System, what: str) -> Iterator[None]:
        """Count the time inside the context as a wait for a system."""
        with self._lock:
            outer = system in self._waits
        self.begin(system, what)
        try:
            yield
        finally:
            if not outer:
                self.end(system)

    def begin(self, system: System, what: str, *, seconds: float = 0.0, why: str = "", told: bool = False) -> None:
        """Record that the job waits for a system. If a wait is already recorded, change only its reason, `why`.

        `seconds`: how long the wait has lasted so far. `told`: the caller has logged the wait, so the next line is
        logged after 30 s.
        """
        with self._lock:
            now = self._clock()
            wait = self._waits.get(system)
            if wait is None:
                tell = now - seconds + (_AGAIN_SECONDS if told else FIRST_SECONDS)
                self._waits[system] = _Wait(what, now - seconds, tell, why)
            else:
                wait.why = why or wait.why

    def end(self, system: System, *, quietly: bool = False) -> None:
        """End a wait, and log its end if the wait was logged. If `quietly` is set, the caller logs the end instead."""
        with self._lock:
            wait = self._waits.pop(system, None)
            if wait is not None and wait.told and not quietly:
                log.info("no longer waiting for %s, after %.0f s", wait.what, self._clock() - wait.since)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Log the waits inside the context, including those for a registry that this process calls."""
        listeners.append(self._registry)
        try:
            with meanwhile(self.look, _LOOK_SECONDS, "waiting"):
                yield
        finally:
            listeners.remove(self._registry)

    def _registry(self, address: str, seconds: float | None, why: str) -> None:
        if seconds is None:
            self.end("registry")
        else:
            self.begin("registry", f"the registry at {address}", seconds=seconds, why=why)

    def look(self) -> None:
        """Log the waits whose next log line is due."""
        with self._lock:
            now = self._clock()
            for wait in self._waits.values():
                if now >= wait.tell:
                    if not wait.told:
                        self.before()
                    wait.told, wait.tell = True, now + _AGAIN_SECONDS
                    log.warning("%s", _words(wait, now))

    def seconds(self, system: System) -> float:
        """Return for how many seconds the job has waited for a system, or 0 if it does not wait."""
        with self._lock:
            wait = self._waits.get(system)
            return 0.0 if wait is None else self._clock() - wait.since

    def said(self) -> list[str]:
        """Return a line for each wait that has lasted at least `FIRST_SECONDS`."""
        with self._lock:
            now = self._clock()
            return [_words(wait, now) for wait in self._waits.values() if now - wait.since >= FIRST_SECONDS]


def answered(ask: Callable[[], Sought], asked: AskedToStop, most_seconds: float) -> Sought:
    """Call `ask` and return its result, retrying while the registry listens but does not answer properly.

    If nothing listens at the registry's address, there is no retry, because the address may be wrong. A signal to stop
    also ends the retries. Raises RegistryUnreachableError.
    """
    deadline = time.monotonic() + most_seconds
    while True:
        try:
            return ask()
        except RegistryUnreachableError as error:
            if not error.listens or asked.count or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def _words(wait: _Wait, now: float) -> str:
    why = f": {wait.why}" if wait.why else ""
    return f"waiting for {wait.what}, for {now - wait.since:.0f} s{why}"
