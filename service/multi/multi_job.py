"""The multi-job service: a `rowkind run` process for each job, supervised by this process.

Each job file in a folder defines a job. A failing job does not affect the others. The service starts a failed job again
after 1 s, then 2 s, 4 s, and so on up to 60 s, as a cluster manager would do. A refused job waits until its file is
changed. If a file is added, its job is started. If a file is deleted, its job is drained and stopped, but its
checkpoint and topics are kept.

A changed file is compared with the job's checkpoint, as by `rowkind diff`, while the job keeps running unchanged. If
the new file is refused, nothing else happens. Otherwise, the differences are logged. If `upgrades` is set, the job is
then drained, and started as by `rowkind run --upgrade`: sinks that can continue do so, and the other sinks are rebuilt
and cut over.
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
    """The jobs of `path`, which is a folder or the file of one job.

    - `upgrades`: whether a job is upgraded when its file changes.
    - `options`: additional options of each job's `rowkind run`.
    - `refused`: the new files that are not run, with the reasons.
    """

    path: Path
    upgrades: bool
    options: Sequence[str] = ()
    members: dict[Path, ManagedJob] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    _seen: dict[Path, str] = field(default_factory=dict)

    def look(self) -> None:
        """Check all files and all processes, and take the actions that are due."""
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
                log.info("job %s: its file was removed, so the job stops; checkpoint and topics stay", member.job.name)
                member.leave()
        self.look_after()

    def look_after(self) -> None:
        """Check all processes, and remove jobs that have ended and will not be started again."""
        for file, member in [*self.members.items()]:
            member.look()
            if member.leaves and not member.runs:
                del self.members[file]

    def end(self) -> None:
        """Ask every job to finish its batch and end. A second call ends all jobs immediately."""
        for member in self.members.values():
            member.leave()

    def all(self) -> list[ManagedJob]:
        """Return a copy of the list of jobs, which is safe for other threads."""
        return list(self.members.values())

    @property
    def runs(self) -> bool:
        """Whether any job has a process."""
        return any(member.runs for member in self.members.values())

    def _texts(self) -> Iterator[tuple[Path, str]]:
        """Yield every job file with its text. A file that cannot be read now is read again at the next check."""
        files = [self.path]
        if self.path.is_dir():
            # The tests of a job are beside it.
            found = [*self.path.glob("*.yaml"), *self.path.glob("*.yml")]
            files = sorted(file for file in found if not file.name.endswith(".tests.yaml"))
        for file in files:
            try:
                yield file, file.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                if file in self.members:
                    yield file, self.members[file].text

    def _come(self, file: Path, text: str) -> None:
        """Start the job of a new file, or record why it is refused."""
        if self._seen.get(file) == text:
            return
        self._seen[file] = text
        try:
            job = loaded(text, file)
            job.check_runnable()
            for other, member in self.members.items():
                if member.job.name == job.name:
                    raise JobsError(f"{file}: {other} already has a job {job.name}; give this job another name")
                if member.job.status != job.status:
                    raise JobsError(f"{file}: one port shows all jobs, so `status` must be the same as in {other}")
        except RowkindError as error:
            self.refused[file] = str(error)
            log.error("%s", error)  # noqa: TRY400 - a mistake in a file is reported without a stack trace
            return
        self.refused.pop(file, None)
        self.members[file] = ManagedJob(file, job, text, self.upgrades, self.options)
        self.members[file].start()
