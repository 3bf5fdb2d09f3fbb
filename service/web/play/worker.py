"""The process that computes the results for `rowkind play`, within time and memory limits.

    server  ── a request, as a line of JSON ─▶  worker
            ◀─ its result, as a line of JSON ──

A query can take any amount of time and memory, and a thread cannot be stopped. So a request that takes too long ends
the worker. The next request starts another one, which takes less than a second.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import duckdb

from rowkind.service.web.play.tried import tried

_MOST_SECONDS = 10.0
"""The time that a request may take, beyond the start of the worker."""

_START_SECONDS = 30.0

_MOST_BYTES = 4 << 30
"""The memory that the worker may allocate."""

_MOST_RESULT = 8 << 20
"""The longest result, in characters of JSON."""


class Worker:
    """Computes results in a process of its own, one after the other. It is ended with the context."""

    def __init__(self, file: Path, most_seconds: float = _MOST_SECONDS) -> None:
        self._file = file
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def result(self, request: Mapping[str, Any]) -> str:
        """Return the result of a request as JSON. If the request takes too much time or memory, the result says so."""
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            said = self._said(process, self._most_seconds) if self._send(process, request) else ""
            if said is not None and said.endswith("\n"):
                return said
            self._end()
        reason = f"takes more than {self._most_seconds:g} s" if said is None else "needs too much memory"
        return failed(f"the run was stopped because it {reason}: use fewer changes, or `rowkind try`")

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # noqa: S603 - this module
            # Without -P, a module in the current folder could replace one of Python's.
            [sys.executable, "-P", "-m", __name__, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._said(process, _START_SECONDS)
        return process

    @staticmethod
    def _send(process: subprocess.Popen[str], request: Mapping[str, Any]) -> bool:
        assert process.stdin is not None
        try:
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    @staticmethod
    def _said(process: subprocess.Popen[str], seconds: float) -> str | None:
        """Return the next line of the worker; None if it says nothing in time, and a part of a line if it has ended."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if ready.select(seconds) else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _result(line: str, file: Path) -> str:
    try:
        found = json.dumps(tried(json.loads(line), file))
    except (MemoryError, duckdb.OutOfMemoryException):
        # What is left of the memory may not be enough for anything else.
        os._exit(1)
    except Exception:  # noqa: BLE001 - any other exception is a bug in Rowkind, and the page says so
        return failed(f"this is a bug in Rowkind, not in your job:\n{traceback.format_exc()}")
    return found if len(found) <= _MOST_RESULT else failed("the result is too large for this page: use `rowkind try`")


def failed(text: str) -> str:
    """Return the result of a request that has none but an error."""
    return json.dumps({"error": {"of": "run", "line": 0, "text": text}})


def main() -> None:
    """Answer requests from standard input until it ends. Ctrl-C ends the server, which ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    file = Path(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(f"{_result(line, file)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
