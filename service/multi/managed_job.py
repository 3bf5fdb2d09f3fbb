"""A job of a service with several: its process, and what its file wants of it."""

from __future__ import annotations

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
"""A job that has run so long has recovered: the next time it is started again after a second."""

_LINES = 200
"""How many of the last lines of a process are kept."""
CHANGE_THE_FILE = "Change its file: the service sees it by itself."
_AGAIN = "The service starts it again by itself."
_SAYS = "rowkind: "
"""With what the command line begins its last words."""

log = logging.getLogger("rowkind")


@dataclass
class ManagedJob:
    """A job of the service.

    - `job`: what its process runs, and `said`, the text that says so; `text`: its file's, as it was last seen.
    - `upgrades`: it changes when its file does.
    - `port`: where the process serves its status, on this machine only.
    - `again`: when it is to be started again, by `time.monotonic`; None while it runs, or waits for its file.
    - `reason`: why it does not run; empty while it does.
    - `restarts`: how often it was started again after it had failed, since its file was changed; `lately`: why it last
      had, until it has recovered.
    - `endings`: why it has ended each time.
    - `news`: what its file wants and does not get; empty if nothing.
    - `leaves`: it ends, and is not started again.
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
        """Whether its process is there."""
        return self._process is not None

    @property
    def refused(self) -> bool:
        """Whether it waits until its file is changed."""
        return bool(self.reason) and self.again is None and not self.leaves

    @property
    def wrong(self) -> tuple[str, str]:
        """What is wrong with it, and what will be done or is to be; empty texts for nothing."""
        if self.refused:
            return self.reason, CHANGE_THE_FILE
        if self.reason and self.again is not None:
            wait = max(0.0, self.again - time.monotonic())
            return self.reason, f"It is started again in {wait:.0f} s, for the {_nth(self.restarts + 1)} time."
        if self.reason:
            return self.reason, ""
        again = f"starting again, for the {_nth(self.restarts)} time; it last ended because: {self.lately}"
        return "\n".join(filter(None, (again if self.lately else "", self.news))), ""

    def start(self) -> None:
        """Start its process."""
        # Who takes the port meanwhile makes the job start once more.
        self.port, self.reason, self.again, self._began = free_port(), "", None, time.monotonic()
        upgrade = ["--upgrade"] if self.upgrades else []
        serve = ["--host", "127.0.0.1", "--port", str(self.port)]
        # Its file may have become one that is refused.
        command = ("run", str(self.file), "--stdin", *serve, *upgrade, *self.options)
        self._process = _Process(*command, of=self.job.name, told=self.said)

    def leave(self) -> None:
        """Finish the batch and end, and begin nothing any more; told so once more, end at once."""
        self.leaves, self.again = True, None
        self._ask_no_more()
        if self._process is not None:
            self._process.terminate()

    def changed(self, text: str) -> None:
        """Its file has another text."""
        self.text, self.news = text, ""
        self._ask_no_more()
        try:
            job = loaded(text, self.file)
            job.check_runnable()
        except JobError as error:
            self._refused(str(error))
            return
        if job.name != self.job.name:
            self._refused(f"it is of job {job.name} now: give that a file of its own")
        elif not self.runs:
            self.job, self.said, self._in_a_row, self.restarts, self.lately = job, text, 0, 0, ""
            self.start()
        elif job.model_dump() == self.job.model_dump():
            self.said = text
        else:
            self._next = job, text
            self._asks = _Process("diff", str(self.file))

    def look(self) -> None:
        """See what has become of its processes, and do what is due."""
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
        # Who sees a reason and no time takes the job for refused.
        self.again = time.monotonic() + wait
        self.reason = self.lately
        log.warning("job %s ended with exit code %d; it is started again in %.0f s", self.job.name, code, wait)

    def _answered(self, code: int, said: Sequence[str]) -> None:
        """What `rowkind diff` said of the changed file."""
        if code:
            self._next = None
            self._refused("\n".join(said))
            return
        for line in said:
            log.info("job %s: %s", self.job.name, line)
        if self.upgrades:
            log.info("job %s: its file was changed, and so it is", self.job.name)
            if self._process is not None:
                self._process.terminate()
        else:
            self._next = None
            self.news = (
                "its file was changed; the job does so once the service is started again with --on-change upgrade"
            )
            log.warning("job %s: %s", self.job.name, self.news)

    def _refused(self, why: str) -> None:
        self.news = f"its file was changed, and is refused: {why}"
        log.error("job %s goes on as it was: %s", self.job.name, self.news)


def _nth(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


class _Process:
    """A `rowkind` command in a session of its own, so that a signal to the group of this process is not its second one.

    It is `told` something on standard input. What it tells on standard error is passed on under the name of the job
    that it is `of`. One of none is quiet: then all that it tells is `said`.
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
        # One that has ended already says why.
        with suppress(BrokenPipeError), self._process.stdin as input_:
            input_.write(told)
        output = self._process.stderr if of else self._process.stdout
        assert output is not None, "it is a pipe"
        self._listener = threading.Thread(target=self._listen, args=(output,), name="log of a job", daemon=True)
        self._listener.start()

    @property
    def code(self) -> int | None:
        """The exit code once it has ended."""
        if (code := self._process.poll()) is not None:
            # What it has told is in the pipe; who keeps that open is a process it has left, which says no more.
            self._listener.join(timeout=1.0)
        return code

    @property
    def last(self) -> str:
        """Why it ended, as it has said in the end."""
        said = list(self.said)
        began = max((at for at, line in enumerate(said) if line.startswith(_SAYS)), default=None)
        return "" if began is None else "\n".join(said[began:]).removeprefix(_SAYS)

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                self.said.append(line.rstrip())
                if self._of:
                    sys.stderr.write(self._named(line))

    def _named(self, line: str) -> str:
        """A line of the log under the job's name, be it text or an object of JSON."""
        return f'{{"job": "{self._of}", {line[1:]}' if line.startswith("{") else f"{self._of}: {line}"
