"""What a job waits for that is not its own: Kafka, a topic, the registry, the checkpoint.

A wait is told after five seconds and every thirty seconds from then on, and once more when it is over.
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
"""So that a look once in a while finds it within five seconds."""

_AGAIN_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 1.0

log = logging.getLogger("rowkind")


@dataclass
class _Wait:
    """For `what`, since then by the monotonic clock; `tell` says when it is told next."""

    what: str
    since: float
    tell: float
    why: str = ""
    told: bool = False


class Waiting:
    """What a job waits for now; may be used from any thread. `before` is called before the first word of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waits: dict[System, _Wait] = {}
        self.before: Callable[[], None] = lambda: None

    @contextmanager
    def on(self, system: System, what: str) -> Iterator[None]:
        """What is inside asks a system, and may have to wait for it."""
        with self._lock:
            outer = system in self._waits
        self.begin(system, what)
        try:
            yield
        finally:
            if not outer:
                self.end(system)

    def begin(self, system: System, what: str, *, seconds: float = 0.0, why: str = "", told: bool = False) -> None:
        """The job waits for a system, and has for so long, unless that is known; somebody may have `told` so."""
        with self._lock:
            now = self._clock()
            wait = self._waits.get(system)
            if wait is None:
                tell = now - seconds + (_AGAIN_SECONDS if told else FIRST_SECONDS)
                self._waits[system] = _Wait(what, now - seconds, tell, why)
            else:
                wait.why = why or wait.why

    def end(self, system: System, *, quietly: bool = False) -> None:
        """The system has answered, or is not asked any more. Nothing is said if somebody else does, `quietly`."""
        with self._lock:
            wait = self._waits.pop(system, None)
            if wait is not None and wait.told and not quietly:
                log.info("not waiting for %s any more, after %.0f s", wait.what, self._clock() - wait.since)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is waited for inside is told, also of a registry that is asked in this process."""
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
        """Tell what is due."""
        with self._lock:
            now = self._clock()
            for wait in self._waits.values():
                if now >= wait.tell:
                    if not wait.told:
                        self.before()
                    wait.told, wait.tell = True, now + _AGAIN_SECONDS
                    log.warning("%s", _words(wait, now))

    def seconds(self, system: System) -> float:
        """For how long the job has waited for a system, 0 if it does not."""
        with self._lock:
            wait = self._waits.get(system)
            return 0.0 if wait is None else self._clock() - wait.since

    def said(self) -> list[str]:
        """What has been waited for for so long that it is worth a word, a line each."""
        with self._lock:
            now = self._clock()
            return [_words(wait, now) for wait in self._waits.values() if now - wait.since >= FIRST_SECONDS]


def answered(ask: Callable[[], Sought], asked: AskedToStop, most_seconds: float) -> Sought:
    """What the registry answers to a question, which is asked again while it does not answer as it should.

    A registry that is not there at all is not waited for: its address may be wrong. Raises RegistryUnreachableError.
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
