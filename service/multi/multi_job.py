"""Several jobs in one service: a process for each, `rowkind run`, and this one, which looks after them.

The jobs are the files of a folder. A job that fails takes no other with it: it is started again, after a second, then
two, four, up to a minute, as a cluster's manager would; one that was refused waits until its file is changed. A file
that comes is a job that is started, one that goes is a job that is drained and ended; checkpoint and topics stay.

A file that changes is held against the job's checkpoint, as `rowkind diff` does, while the job goes on as it was. If it
is refused, that is all. Else what would change is told, and where the operator has asked for it the job is drained and
started as by `rowkind run --upgrade`: what can stay goes on, what cannot is rebuilt and cut over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.errors import RowkindError
from rowkind.service.job.load import loaded
from rowkind.service.multi.managed_job import ManagedJob
from rowkind.service.query.errors import JobsError

log = logging.getLogger("rowkind")


@dataclass
class Several:
    """The jobs of `path`, a folder or the file of one job.

    - `upgrades`: a job changes when its file does.
    - `options`: what each job's `rowkind run` is given besides.
    - `refused`: why files are not run that have not been, by file.
    """

    path: Path
    upgrades: bool
    options: Sequence[str] = ()
    members: dict[Path, ManagedJob] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    _seen: dict[Path, str] = field(default_factory=dict)

    def look(self) -> None:
        """Look at all files and all processes, and do what is due."""
        texts = dict(self._texts())
        for file in [*self.refused]:
            if file not in texts:
                del self.refused[file], self._seen[file]
        for file, text in texts.items():
            member = self.members.get(file)
            if member is None:
                self._come(file, text)
            elif member.text != text and not member.leaves:
                member.changed(text)
        for file, member in self.members.items():
            if file not in texts and not member.leaves:
                log.info("job %s: its file is gone, so it ends; checkpoint and topics stay", member.job.name)
                member.leave()
        self.look_after()

    def look_after(self) -> None:
        """Look at all processes, and forget jobs that have ended for good."""
        for file, member in [*self.members.items()]:
            member.look()
            if member.leaves and not member.runs:
                del self.members[file]

    def end(self) -> None:
        """Ask every job to finish its batch and end; asked once more, they end at once."""
        for member in self.members.values():
            member.leave()

    def all(self) -> list[ManagedJob]:
        """Every job there is just now, also for other threads."""
        return list(self.members.values())

    @property
    def runs(self) -> bool:
        """Whether any process is there."""
        return any(member.runs for member in self.members.values())

    def _texts(self) -> Iterator[tuple[Path, str]]:
        """Every job file there is, with its text. One that is being written is looked at again."""
        files = sorted([*self.path.glob("*.yaml"), *self.path.glob("*.yml")]) if self.path.is_dir() else [self.path]
        for file in files:
            try:
                yield file, file.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                if file in self.members:
                    yield file, self.members[file].text

    def _come(self, file: Path, text: str) -> None:
        """Start the job of a file that has none."""
        if self._seen.get(file) == text:
            return
        self._seen[file] = text
        try:
            job = loaded(text, file)
            job.check_runnable()
            for other, member in self.members.items():
                if member.job.name == job.name:
                    raise JobsError(f"{file}: {other} has a job {job.name} already; give this one another name")
                if member.job.status != job.status:
                    raise JobsError(f"{file}: one port shows all jobs, so `status` must be the same as in {other}")
        except RowkindError as error:
            self.refused[file] = str(error)
            log.error("%s", error)  # noqa: TRY400 - a mistake in a file is told without a stack trace
            return
        self.refused.pop(file, None)
        self.members[file] = ManagedJob(file, job, text, self.upgrades, self.options)
        self.members[file].start()
