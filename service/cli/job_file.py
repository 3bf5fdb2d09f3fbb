"""What the commands share: the job file that they are given, and how they talk to people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rowkind.service.job.model import Job
    from rowkind.service.plan.pipeline import PlannedQuery

JOB = click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))


def calls(*lines: str) -> str:
    """The end of a command's help: how it is called."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)


def load_job(file: Path, text: str | None = None) -> Job:
    """The job in a file, or in the text that it had. Raises JobError."""
    from rowkind.service.job.load import load, loaded  # noqa: PLC0415 -- loaded when it is needed

    return load(file) if text is None else loaded(text, file)


def known(job: Job, sink: str | None) -> None:
    """Refuse the name of a sink that is not there."""
    from rowkind.service.job.errors import JobError, Problem  # noqa: PLC0415 -- loaded when it is needed

    if sink is not None and sink not in job.sinks:
        text = f"there is no sink {sink!r}; sinks are {', '.join(job.sinks)}"
        raise JobError(str(job.file), [Problem(job.line("sinks"), "sinks", text)])


def planned_queries(job: Job) -> dict[str, PlannedQuery]:
    """Its queries, planned. Raises PlanError with all that is wrong with them."""
    from rowkind.service.query.queries import planned_whole  # noqa: PLC0415 -- as above

    return planned_whole(job)


def fail(message: str, code: int) -> NoReturn:
    """End with a message and this exit code."""
    click.echo(f"rowkind: {message}", err=True)
    sys.exit(code)


def warn(message: str) -> None:
    """Tell something on standard error."""
    click.echo(f"rowkind: {message}", err=True)
