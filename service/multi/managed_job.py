"""One job of a multi-job service, with its process and the changes to its job file."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rowkind.errors import REFUSED
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import loaded
from rowkind.service.job.model import Job
from rowkind.service.machine.ports import free_port
from rowkind.service.monitoring.incidents import Incidents
from rowkind.service.monitoring.status import Incident

_LONGEST_WAIT_SECONDS = 60.0
_WELL_SECONDS = 300.0
"""A job that has run for this many seconds counts as recovered. After its next failure, the wait is 1 s again."""

_LINES = 200
"""How many of a process's last output lines are kept."""
CHANGE_THE_FILE = "Change its file; the service then starts it automatically."
_AGAIN = "The service restarts it automatically."
_SAYS = "rowkind: "
"""The prefix of the command line's final message."""

log = logging.getLogger("rowkind")


@dataclass
class ManagedJob:
    """One job of the service.

    - `job`: the job that its process runs; `said`: the text from which that job was parsed; `text`: the current text of
      its file.
    - `upgrades`: whether the job is upgraded when its file changes.
    - `port`: the port of the process's status page, which is accessible from this machine only.
    - `again`: when to start it again, by `time.monotonic`; None while it is running or waits for a change of its file.
    - `reason`: why it is not running; empty while it is running.
    - `restarts`: the number of starts after failures since its file was changed.
    - `lately`: the reason for the last failure, until the job has recovered.
    - `endings`: the failures so far.
    - `news`: a change of its file that is not applied, with the reason; empty if there is none.
    - `leaves`: the job is ending, and will not be started again.
    """

    file: Path
    job: Job
    said: str
    upgrades: bool
    options: Sequence[str] = ()
    port: int = 0
    again: float | None = None
    reason: str = ""
    news: str = ""
    leaves: bool = False
    restarts: int = 0
    lately: str = ""
    endings: Incidents = field(default_factory=Incidents)
    text: str = field(init=False)
    _process: _Process | None = None
    _asks: _Process | None = None
    _next: tuple[Job, str] | None = None
    _began: float = 0.0
    _in_a_row: int = 0

    def __post_init__(self) -> None:
        self.text = self.said

    @property
    def runs(self) -> bool:
        """Whether the job has a process."""
        return self._process is not None

    @property
    def refused(self) -> bool:
        """Whether the job was refused and waits for a change of its file."""
        return bool(self.reason) and self.again is None and not self.leaves

    @property
    def wrong(self) -> tuple[str, str]:
        """The job's problem, and what will or must be done about it. Both texts are empty if there is no problem."""
        if self.refused:
            return self.reason, CHANGE_THE_FILE
        if self.reason and self.again is not None:
            wait = max(0.0, self.again - time.monotonic())
            return self.reason, f"It is restarted in {wait:.0f} s, for the {_nth(self.restarts + 1)} time."
        if self.reason:
            return self.reason, ""
        again = f"restarting for the {_nth(self.restarts)} time; it last ended because: {self.lately}"
        return "\n".join(filter(None, (again if self.lately else "", self.news))), ""

    def start(self) -> None:
        """Start the job's process."""
        # If another program takes the port in the meantime, the job fails and is started again.
        self.port, self.reason, self.again, self._began = free_port(), "", None, time.monotonic()
        upgrade = ["--upgrade"] if self.upgrades else []
        serve = ["--host", "127.0.0.1", "--port", str(self.port)]
        # The text is passed on standard input, because the file may have become invalid.
        command = ("run", str(self.file), "--stdin", *serve, *upgrade, *self.options)
        self._process = _Process(*command, of=self.job.name, told=self.said)

    def leave(self) -> None:
        """Let the job finish its batch and end, without a restart. A second call ends the process immediately."""
        self.leaves, self.again = True, None
        self._ask_no_more()
        if self._process is not None:
            self._process.terminate()

    def changed(self, text: str) -> None:
        """Handle a change to the text of the job file."""
        self.text, self.news = text, ""
        self._ask_no_more()
        try:
            job = loaded(text, self.file)
            job.check_runnable()
        except JobError as error:
            self._refused(str(error))
            return
        if job.name != self.job.name:
            self._refused(f"the file now contains job {job.name}: give that job its own file")
        elif not self.runs:
            self.job, self.said, self._in_a_row, self.restarts, self.lately = job, text, 0, 0, ""
            self.start()
        elif job.model_dump() == self.job.model_dump():
            self.said = text
        else:
            self._next = job, text
            self._asks = _Process("diff", str(self.file))

    def look(self) -> None:
        """Check the job's processes, and take the actions that are due."""
        if self._process is not None and (code := self._process.code) is not None:
            last, self._process = self._process.last, None
            self._ended(code, last)
        if self._asks is not None and (code := self._asks.code) is not None:
            said, self._asks = [self._asks.last] if code else list(self._asks.said), None
            self._answered(code, said)
        if self.again is not None and time.monotonic() >= self.again:
            self.restarts += 1
            self.start()

    def _ask_no_more(self) -> None:
        if self._asks is not None:
            self._asks.terminate()
            self._asks = None

    def _ended(self, code: int, last: str) -> None:
        if self.leaves:
            return
        if self._next is not None and self._asks is None:
            (self.job, self.said), self._next, self.restarts, self.lately = self._next, None, 0, ""
            self.start()
            return
        self.lately = last or f"it ended with exit code {code}"
        what, _, remedy = self.lately.partition("\n")
        self.endings.add(Incident(time.time(), "", what, remedy or (CHANGE_THE_FILE if code == REFUSED else _AGAIN)))
        if code == REFUSED:
            self.reason = self.lately
            log.error("job %s is refused, and waits until its file is changed", self.job.name)
            return
        if time.monotonic() - self._began > _WELL_SECONDS:
            self._in_a_row = 0
        wait = min(2.0**self._in_a_row, _LONGEST_WAIT_SECONDS)
        self._in_a_row += 1
        # Set `again` before `reason`: a thread that sees a reason without a time would mistake the job for a refused
        # one.
        self.again = time.monotonic() + wait
        self.reason = self.lately
        log.warning("job %s ended with exit code %d; it is restarted in %.0f s", self.job.name, code, wait)

    def _answered(self, code: int, said: Sequence[str]) -> None:
        """Handle the output of `rowkind diff` for the changed file."""
        if code:
            self._next = None
            self._refused("\n".join(said))
            return
        for line in said:
            log.info("job %s: %s", self.job.name, line)
        if self.upgrades:
            log.info("job %s: its file was changed, so the job is upgraded", self.job.name)
            if self._process is not None:
                self._process.terminate()
        else:
            self._next = None
            self.news = "its file was changed; to apply the change, start the service again with --on-change upgrade"
            log.warning("job %s: %s", self.job.name, self.news)

    def _refused(self, why: str) -> None:
        self.news = f"its changed file is refused: {why}"
        log.error("job %s continues unchanged: %s", self.job.name, self.news)


def _nth(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


class _Process:
    """A `rowkind` command in its own session, so that a signal to this process's group does not reach it a second time.

    `told`: the text to write to its standard input. `of`: the name of a job, with which its standard error is passed
    on; if empty, nothing is passed on. `said` contains the last lines of the command's output.
    """

    def __init__(self, *arguments: str, of: str = "", told: str = "") -> None:
        self.said: deque[str] = deque(maxlen=_LINES)
        self._of = of
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "rowkind", *arguments],
            stdin=subprocess.PIPE,
            stdout=None if of else subprocess.PIPE,
            stderr=subprocess.PIPE if of else subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it is a pipe"
        # If the process has already ended, its output says why.
        with suppress(BrokenPipeError), self._process.stdin as input_:
            input_.write(told)
        output = self._process.stderr if of else self._process.stdout
        assert output is not None, "it is a pipe"
        self._listener = threading.Thread(target=self._listen, args=(output,), name="log of a job", daemon=True)
        self._listener.start()

    @property
    def code(self) -> int | None:
        """The exit code of the process, or None while it is running."""
        if (code := self._process.poll()) is not None:
            # All output is in the pipe. A remaining child process may keep the pipe open, but writes nothing more.
            self._listener.join(timeout=1.0)
        return code

    @property
    def last(self) -> str:
        """The final message of the process, which says why it ended."""
        said = list(self.said)
        for at in reversed(range(len(said))):
            if said[at].startswith(_SAYS):
                return "\n".join(said[at:]).removeprefix(_SAYS)
            with suppress(ValueError):
                if said[at].startswith("{") and "exit_code" in (found := json.loads(said[at])):
                    return str(found["message"])
        return ""

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        self._process.terminate()

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                self.said.append(line.rstrip())
                if self._of:
                    sys.stderr.write(self._named(line))

    def _named(self, line: str) -> str:
        """Return a log line, which is text or a JSON object, with the job's name added."""
        return f'{{"job": "{self._of}", {line[1:]}' if line.startswith("{") else f"{self._of}: {line}"
