"""The signals that ask a job to stop: SIGTERM and SIGINT. The process ends within five seconds of the first.

While queries run, they finish their batches, as far as there is time; a second signal does not wait for them. Before,
there is nothing to finish, and the first signal interrupts whatever is under way. A batch that is not finished in time
is left as a crash leaves one, and done again at the next start.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, Self

JOB_SECONDS, SERVICE_SECONDS = 3.5, 4.5
"""How long a process may take from the first signal on. A service of several jobs waits for the process of each."""

_SHOW_CURSOR = "\x1b[?25h"

log = logging.getLogger("rowkind")


@dataclass
class AskedToStop:
    """How many signals to stop have come. `drains`: queries run, and finish their batches then.

    `interrupted`: a signal came while none ran, and has interrupted what the main thread did.
    """

    count: int = 0
    drains: bool = False
    interrupted: bool = False


@contextmanager
def until_a_signal() -> Iterator[Signals]:
    """What a job's process does inside ends in time after a signal, which is no error."""
    with Signals() as signals:
        signals.end_within(JOB_SECONDS)
        try:
            yield signals
        except (KeyboardInterrupt, Exception) as error:
            # A library may make an error of its own of an interrupt, confluent-kafka a TypeError while a client begins.
            if not (signals.interrupted or isinstance(error, KeyboardInterrupt)):
                raise
            # There is nothing to finish.
            signals.drains = False
        if signals.count:
            _leave()


class Signals(AskedToStop):
    """How many signals to stop have come. Used with `with`, after which the handlers are what they were."""

    _NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also from whoever took them since: pyspark does so when a session starts."""
        for number in self._NUMBERS:
            signal.signal(number, self._handle)

    def end_within(self, seconds: float) -> None:
        """From the first signal on, let the process end within so many seconds, whatever its main thread does then.

        That may be in a library that does not come back before a server has answered. The system tells of signals by a
        socket meanwhile (`signal.set_wakeup_fd`).
        """
        heard, tells = socket.socketpair()
        tells.setblocking(False)
        signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._guard, args=(heard, tells, seconds), name="signals", daemon=True).start()

    def _forget(self) -> None:
        """In a process that is forked from this one: what comes to that is no signal to this."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _guard(self, heard: socket.socket, _tells: socket.socket, seconds: float) -> None:
        while (number := heard.recv(1)) and number[0] not in self._NUMBERS:
            pass
        threading.Event().wait(seconds)
        if self.drains:
            log.warning("a batch is not finished %g s after the signal: it is done again at the next start", seconds)
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
        _leave()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if not self.drains:
            self.interrupted = True
            raise KeyboardInterrupt


def _leave() -> NoReturn:
    """End the process at once. To take everything apart that was loaded takes Python seconds on a busy machine."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
