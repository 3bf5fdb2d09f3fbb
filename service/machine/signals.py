"""The signals that stop a job: SIGTERM and SIGINT. The process exits within 5 s of the first signal.

Running queries finish their batches, if there is time. After a second signal, the job does not wait for them. Before
any query runs, there is nothing to finish, so the first signal interrupts the main thread. A batch that is not finished
in time is abandoned, as in a crash, and repeated at the next start.
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
"""Seconds that a process may take after the first signal. A multi-job service waits for the processes of its jobs."""

_SHOW_CURSOR = "\x1b[?25h"

log = logging.getLogger("rowkind")


@dataclass
class AskedToStop:
    """The number of stop signals received. `drains`: queries are running, and will finish their batches.

    `interrupted`: a signal arrived while no query ran, and has interrupted the main thread.
    """

    count: int = 0
    drains: bool = False
    interrupted: bool = False


@contextmanager
def until_a_signal() -> Iterator[Signals]:
    """Yield the signals of a job's process. After a signal, the process exits without an error.

    The caller calls `Signals.end_within` before its main thread waits for a server.
    """
    with Signals() as signals:
        try:
            yield signals
        except (KeyboardInterrupt, Exception) as error:
            # A library may turn an interrupt into its own error. confluent-kafka raises TypeError while a client
            # starts.
            if not (signals.interrupted or isinstance(error, KeyboardInterrupt)):
                raise
            # There is nothing to finish.
            signals.drains = False
        if signals.count:
            _leave()


class Signals(AskedToStop):
    """The number of stop signals received. As a context manager, it restores the previous handlers at the end."""

    _NUMBERS = (signal.SIGTERM, signal.SIGINT)
    _guarded = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        self.listen()
        os.register_at_fork(after_in_child=self._forget)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Install the signal handlers. Call this again after a session has started, because pyspark replaces them."""
        for number in self._NUMBERS:
            signal.signal(number, self._handle)

    def end_within(self, seconds: float) -> None:
        """Ensure that the process exits within `seconds` of the first signal, whatever its main thread does.

        The main thread may be in a library call that returns only when a server has answered. Meanwhile the operating
        system reports signals through a socket (`signal.set_wakeup_fd`). Another thread waits for them, so this process
        cannot fork afterwards (`service.processes.forks`). A second call changes nothing.
        """
        if self._guarded:
            return
        self._guarded = True
        heard, tells = socket.socketpair()
        tells.setblocking(False)
        signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._guard, args=(heard, tells, seconds), name="signals", daemon=True).start()

    def _forget(self) -> None:
        """Restore the previous handlers in a forked process, because its signals are not meant for its parent.

        This method also runs in processes that a forked process forks. What that process does with a signal stays.
        """
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _guard(self, heard: socket.socket, _tells: socket.socket, seconds: float) -> None:
        while (number := heard.recv(1)) and number[0] not in self._NUMBERS:
            pass
        threading.Event().wait(seconds)
        if self.drains:
            log.warning("a batch has not finished %g s after the signal; it is repeated at the next start", seconds)
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
        _leave()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if not self.drains:
            self.interrupted = True
            raise KeyboardInterrupt


def _leave() -> NoReturn:
    """Exit the process immediately. Python's normal shutdown takes seconds on a busy machine."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
