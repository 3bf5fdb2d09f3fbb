"""Run `rowkind` as users do: as a separate process, with its exit code and output.

Each command runs in its own session, together with its JVM and Python workers. So all of them can be found by the
session's number, whatever process groups they create, and ended together. This needs /proc, and so Linux.
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
"""Seconds after which a condition counts as never met; on an idle machine, nothing takes that long."""


def until(
    done: Callable[[], bool], what: str, explain: Callable[[], str] = lambda: "", seconds: float = PATIENCE
) -> None:
    """Return as soon as `done` is true; after `seconds`, fail with `what` and the explanation."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if done():
            return
        now = time.monotonic()
        assert now < deadline, f"{what} did not come about in {seconds:.0f} s\n{explain()}"
        # Checking takes time from the job that is awaited, so pauses grow with it. They are limited, because a check
        # may itself have waited for a stopped broker.
        time.sleep(min(5.0, max(0.05, 4 * (now - began))))


def get(port: int, path: str) -> tuple[int, str]:
    """Return status code and body of a page of a job; code 0 while the server does not answer."""
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
    """A command's exit code and output."""

    code: int
    output: str
    error: str

    @property
    def said(self) -> list[str]:
        """The lines of standard error, without the lines that report a finished batch."""
        return [line for line in self.error.splitlines() if " INFO batch " not in line]


class Rowkind:
    """A `rowkind` command, started by `with`. Its processes that still run at the end are killed."""

    def __init__(self, folder: Path, *arguments: str, cwd: Path = ROOT, **environment: str) -> None:
        self._arguments, self._cwd = arguments, cwd
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
                cwd=self._cwd,
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
        """The id of the process, which is also the id of its session."""
        return self._main.pid

    @property
    def running(self) -> bool:
        """Whether the command is still running."""
        return self._main.poll() is None

    @property
    def port(self) -> int:
        """The port of the status page, from the log; waits for it, and fails if the command ends first."""
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
        """Send SIGTERM to the command, as a cluster manager does."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self._main.send_signal(number)

    def terminate_all(self) -> None:
        """Send SIGTERM to every process of the command, in any session, as systemd does."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def ended(self, seconds: float = PATIENCE) -> Ended:
        """Wait for the command to end, and return how it ended."""
        until(lambda: not self.running, "the end of rowkind", lambda: self.error, seconds)
        return Ended(self._main.returncode, self.output, self.error)

    def kill_driver(self) -> None:
        """Send SIGKILL to the command alone; its JVM and workers have to find out for themselves."""
        self._main.kill()
        self._main.wait()

    def kill(self) -> None:
        """Send SIGKILL to every process of the session, until no process is left."""

        def gone() -> bool:
            left = list(self._members())
            for pid, _ in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._main.poll()
            return not left

        until(gone, "the end of all processes")

    def busy_worker(self) -> int:
        """Return the Python worker of a task that is using the most processor time.

        Such workers are forked by the daemon for `pyspark.worker`. The driver has separate daemons for the planning of
        sources and sinks. Their workers are left out, because they run no task that Spark could repeat.
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
        """The Python process that plans how far each batch reads."""
        (found,) = self.planners()
        return found

    def planners(self) -> list[int]:
        """All such processes that are running."""
        return [
            pid for pid, _ in self._members() if _is(pid, b"-m\0pyspark.sql.streaming.python_streaming_source_runner\0")
        ]

    def java(self) -> int:
        """The JVM."""
        (found,) = (pid for pid, _ in self._members() if _read(pid, "comm") == b"java\n")
        return found

    def workers(self) -> list[int]:
        """The Python workers of tasks, and the daemons that fork them."""
        return [pid for pid, _ in self._members() if _is_worker(pid)]

    def writers(self) -> list[int]:
        """The processes that write to Kafka, each in its own session."""
        return [pid for pid in self.members() if _read(pid, "comm") == b"rowkind-writer\n"]

    def members(self) -> list[int]:
        """All processes of the command, including those of other sessions."""
        return having(self._mark)

    def _workers(self) -> list[int]:
        parents = dict(self._members())
        daemons = {pid for pid in parents if _is_worker(pid)}
        return [pid for pid in daemons if parents[pid] in daemons]

    def _members(self) -> Iterator[tuple[int, int]]:
        """Yield every living process of the session, with its parent."""
        for pid in _processes():
            # The program's name is in parentheses and may contain any character.
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
    """Whether a process has this in its command line, and is not a stand-in that waits to become such a process."""
    found = _read(pid, "cmdline")
    return command in found and b"stand_in.py" not in found


def _ticks(pid: int) -> int:
    """The processor time that a process has used, in clock ticks."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
