"""`rowkind run` as its users start it, on this machine or in a container, and what it tells about itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.run.process import get

ROWKIND = str(Path(sys.executable).with_name("rowkind"))


def until(done: Callable[[], bool], what: str, seconds: float, explain: Callable[[], str]) -> None:
    """Return as soon as `done`; after so many seconds fail, saying `what` did not come about and why."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds:.0f} s\n{explain()}"
        time.sleep(0.2)


@dataclass
class Process:
    """`rowkind run` as a process of this machine, with its output in a file."""

    job: Path
    port: int
    output: Path
    environment: Mapping[str, str]
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        with self.output.open("ab") as output:
            self._running = subprocess.Popen(
                [ROWKIND, "run", str(self.job), "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.environment),
                cwd=self.job.parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process()
        if process.poll() is None:
            process.kill()
            process.wait()

    def said(self) -> str:
        """The end of its output."""
        return self.output.read_text(errors="replace")[-4000:]

    def ready(self) -> bool:
        """Whether it is ready; fails if it has ended."""
        code = self._process().poll()
        assert code is None, f"rowkind run ended with {code}:\n{self.said()}"
        return get(self.port, "/readyz")[0] == 200

    def stop(self) -> int:
        """Ask it to end with SIGTERM; its exit code."""
        process = self._process()
        process.send_signal(signal.SIGTERM)
        return process.wait(120)

    def _process(self) -> subprocess.Popen[bytes]:
        assert self._running is not None, "the job is started with `with`"
        return self._running
