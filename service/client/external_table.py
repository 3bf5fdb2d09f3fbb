"""A job's table or sink, for programs that read or write its topic from outside the job."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

from rowkind.errors import REFUSED, RowkindError
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.source_table import SourceTable, Start
from rowkind.service.plan.pipeline import plan, source_table
from rowkind.service.plan.sql.scope import near

JobFile = Job | str | PathLike[str]
"""A job, or the path of its file."""


class OutsideError(RowkindError):
    """A program asked for a topic that the job does not have, or tried to write a row that the topic cannot take."""

    exit_code = REFUSED


def opened(job: JobFile) -> Job:
    """Load the job if it is given as a file. Raises JobError, or OutsideError if the job has no `kafka` section."""
    job = job if isinstance(job, Job) else load(Path(job))
    if job.kafka is None:
        raise OutsideError(f"{job.file}: `kafka` is missing: add `kafka: {{bootstrap.servers: …}}`")
    return job


def readable_topic(job: Job, name: str) -> SourceTable:
    """Return the sink or table of this name in a form that can be read. A sink takes precedence.

    Raises OutsideError, JobError, PlanError or RegistryError.
    """
    if name in job.tables and name not in job.sinks:
        return replace(table_topic(job, name), start=Start(), truncates=False)
    if name not in job.sinks:
        raise OutsideError(f"there is no sink or table {name!r}{near(name, (*job.sinks, *job.tables))}")
    if (to := job.sinks[name].to) != "topic":
        where = "are in the log of the running job" if to == "print" else "are discarded"
        raise OutsideError(
            f"sink {name} has no topic that could be read: with `to: {to}`, its changes {where}. To read its result, "
            f"remove `to: {to}`, and set a `mode`"
        )
    sink = plan(job, name)
    return SourceTable(
        table=name,
        topic=sink.topic,
        mode=sink.mode,
        declared=sink.value,
        primary_key=sink.key,
        row_kind=sink.row_kind,
        format=sink.format,
    )


def writable_topic(job: Job, name: str) -> SourceTable:
    """Return the table of this name. Raises OutsideError, JobError or RegistryError."""
    if name not in job.tables:
        raise OutsideError(f"there is no table {name!r}{near(name, job.tables)}")
    if job.tables[name].mode == "debezium":
        raise OutsideError(
            f"table {name} cannot be written, because Debezium writes its topic: change the database, or produce to "
            "another table"
        )
    return table_topic(job, name)


def table_topic(job: Job, name: str) -> SourceTable:
    """Return a table of the job. Raises OutsideError if it has no topic, JobError, PlanError or RegistryError."""
    if job.tables[name].generate is not None:
        raise OutsideError(
            f"table {name} has no topic, because the job generates its rows: set `topic` instead of `generate`, or "
            "read the topic of a sink"
        )
    return source_table(job, name)
