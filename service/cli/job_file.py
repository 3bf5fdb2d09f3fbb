"""Helpers for the commands: load the job file, and print messages to the user."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from rowkind.service.cli.progress_output import LOG_FORM, json_line

if TYPE_CHECKING:
    from rowkind.service.job.model import Job
    from rowkind.service.plan.pipeline import PlannedQuery

JOB = click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))


def calls(*lines: str) -> str:
    """Return example calls as the last section of a command's help."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)


def load_job(file: Path, text: str | None = None) -> Job:
    """Load the job from a file or, if `text` is given, from that text instead. Raises JobError."""
    from rowkind.service.job.load import load, loaded  # noqa: PLC0415 -- loaded when it is needed

    return load(file) if text is None else loaded(text, file)


def planned_queries(job: Job) -> dict[str, PlannedQuery]:
    """Plan the job's queries. Raises PlanError with the problems of all queries."""
    from rowkind.service.query.queries import planned_whole  # noqa: PLC0415 -- as above

    return planned_whole(job)


def fail(message: str, code: int, traceback: str = "") -> NoReturn:
    """Print a message to standard error, below the traceback if there is one, and exit with this code.

    With `--log json` it is an object with the exit code.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(LOG_FORM) == "json":
        trace = {"traceback": traceback} if traceback else {}
        click.echo(json_line(time.time(), "ERROR", message, {"exit_code": code, **trace}), err=True)
    else:
        click.echo(f"{traceback}rowkind: {message}", err=True)
    sys.exit(code)


def warn(message: str) -> None:
    """Print a message to standard error."""
    click.echo(f"rowkind: {message}", err=True)
