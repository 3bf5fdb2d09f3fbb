"""A table or a sink of a job as whoever reads or writes its topic from outside sees it."""

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
"""A job, or the file that it is in."""


class OutsideError(RowkindError):
    """Something is asked of a job's topics that they cannot give or take."""

    exit_code = REFUSED


def opened(job: JobFile) -> Job:
    """The job, which has to know where Kafka is. Raises JobError."""
    job = job if isinstance(job, Job) else load(Path(job))
    if job.kafka is None:
        raise OutsideError(f"{job.file}: kafka is missing: where Kafka is, as `{{bootstrap.servers: …}}`")
    return job


def readable_topic(job: Job, name: str) -> SourceTable:
    """The sink of this name, or else the table, as something that can be read.

    Raises OutsideError, JobError, PlanError or a RegistryError.
    """
    if name in job.tables and name not in job.sinks:
        return replace(source_table(job, name), start=Start(), truncates=False)
    if name not in job.sinks:
        raise OutsideError(f"there is no sink or table {name!r}{near(name, (*job.sinks, *job.tables))}")
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
    """The table of this name. Raises OutsideError, JobError or a RegistryError."""
    if name not in job.tables:
        raise OutsideError(f"there is no table {name!r}{near(name, job.tables)}")
    if job.tables[name].mode == "debezium":
        raise OutsideError(
            f"table {name} has what Debezium writes: change the database, or produce to a table of its own"
        )
    return source_table(job, name)
