"""`rowkind` as its users start it: a process of its own, whose exit code and last words are known.

Each runs in a session of its own, with the JVM and the Python workers below it, so that all of them can be found by
the session's number, whatever process groups they make, and ended together. That needs /proc, as Linux has it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from tests.processes import having

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which something counts as never happening; nothing waits that long on a machine at rest."""


def until(
    done: Callable[[], bool], what: str, explain: Callable[[], str] = lambda: "", seconds: float = PATIENCE
) -> None:
    """Return as soon as `done`; after so many seconds fail, saying that `what` did not come about and why."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if done():
            return
        now = time.monotonic()
        assert now < deadline, f"{what} did not come about in {seconds:.0f} s\n{explain()}"
        # To look takes from what is waited for; but one look may have waited itself, for a broker that stood still.
        time.sleep(min(5.0, max(0.05, 4 * (now - began))))


def get(port: int, path: str) -> tuple[int, str]:
    """Code and body of a page of a job; code 0 while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    output: str
    error: str

    @property
    def said(self) -> list[str]:
        """The lines of its standard error but those that tell of a batch that has ended."""
        return [line for line in self.error.splitlines() if " INFO batch " not in line]


class Rowkind:
    """A `rowkind` command, started by `with`; whatever is left of it at the end is killed."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._arguments = arguments
        self._mark = f"ROWKIND_TEST={uuid4().hex}"
        self._environment: Mapping[str, str] = os.environ | environment | dict([self._mark.split("=")])
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.err")))
        self._output, self._error = folder / f"{number:02}.out", folder / f"{number:02}.err"
        self._error.touch()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output, self._error.open("wb") as error:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rowkind", *self._arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def error(self) -> str:
        """Standard error so far."""
        return self._error.read_text(errors="replace")

    @property
    def output(self) -> str:
        """Standard output so far."""
        return self._output.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The number of the process, which is also its session's."""
        return self._main.pid

    @property
    def running(self) -> bool:
        """Whether the command has not ended yet."""
        return self._main.poll() is None

    @property
    def port(self) -> int:
        """The port of the status page, from the log; waits for it, and fails if the command ends before."""
        found = None

        def told() -> bool:
            nonlocal found
            found = re.search(r"status, metrics and health at http://[^:]+:(\d+)", self.error)
            assert found or self.running, f"rowkind ended with {self._main.returncode}:\n{self.error}"
            return found is not None

        until(told, "a status page", lambda: self.error)
        assert found is not None
        return int(found[1])

    def terminate(self) -> None:
        """SIGTERM to the command, as from a cluster's manager."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Any signal to the command alone."""
        self._main.send_signal(number)

    def terminate_all(self) -> None:
        """SIGTERM to every process there is of it, whatever session it is in, as from systemd."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def ended(self, seconds: float = PATIENCE) -> Ended:
        """How the command ended; waits for it."""
        until(lambda: not self.running, "the end of rowkind", lambda: self.error, seconds)
        return Ended(self._main.returncode, self.output, self.error)

    def kill_driver(self) -> None:
        """SIGKILL to the command alone; the JVM and the workers below it are left to find out."""
        self._main.kill()
        self._main.wait()

    def kill(self) -> None:
        """SIGKILL to every process of the session, again until none is left."""

        def gone() -> bool:
            left = list(self._members())
            for pid, _ in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._main.poll()
            return not left

        until(gone, "the end of all processes")

    def busy_worker(self) -> int:
        """The Python worker of a task that works hardest just now.

        Such workers are what the daemon for `pyspark.worker` has forked. The driver has daemons of its own for what it
        asks of sources and sinks; no task that could be done again stands behind their workers.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            before = {pid: _ticks(pid) for pid in self._workers()}
            time.sleep(0.1)
            spent = {pid: _ticks(pid) - ticks for pid, ticks in before.items()}
            if max(spent.values(), default=0) > 0:
                return max(spent, key=lambda pid: spent[pid])
        raise AssertionError(f"no worker of a task was at work in {PATIENCE:.0f} s\n{self.error}")

    def planner(self) -> int:
        """The Python process that says how far each batch goes."""
        (found,) = self.planners()
        return found

    def planners(self) -> list[int]:
        """The same, as many as there are just now."""
        return [
            pid for pid, _ in self._members() if _is(pid, b"-m\0pyspark.sql.streaming.python_streaming_source_runner\0")
        ]

    def java(self) -> int:
        """The JVM."""
        (found,) = (pid for pid, _ in self._members() if _read(pid, "comm") == b"java\n")
        return found

    def workers(self) -> list[int]:
        """The Python workers of tasks, and what they are forked from."""
        return [pid for pid, _ in self._members() if _is_worker(pid)]

    def writers(self) -> list[int]:
        """The processes that write to Kafka, which are in sessions of their own."""
        return [pid for pid in self.members() if _read(pid, "comm") == b"rowkind-writer\n"]

    def members(self) -> list[int]:
        """All processes, those of other sessions too."""
        return having(self._mark)

    def _workers(self) -> list[int]:
        parents = dict(self._members())
        daemons = {pid for pid in parents if _is_worker(pid)}
        return [pid for pid in daemons if parents[pid] in daemons]

    def _members(self) -> Iterator[tuple[int, int]]:
        """Every living process of the session, with its parent."""
        for pid in _processes():
            # The program's name stands in brackets and may hold anything.
            fields = _read(pid, "stat").rpartition(b")")[2].split()
            if fields and fields[0] != b"Z" and int(fields[3]) == self._main.pid:
                yield pid, int(fields[1])

    @property
    def _main(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "a command is started with `with`"
        return self._process


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_worker(pid: int) -> bool:
    return _is(pid, b"worker_daemon\0pyspark.worker\0")


def _is(pid: int, command: bytes) -> bool:
    """Whether a process has this in its command line, and does not only stand in for one that has."""
    found = _read(pid, "cmdline")
    return command in found and b"stand_in.py" not in found


def _ticks(pid: int) -> int:
    """The processor time that a process has had."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
