"""Commands about topics and what lies in them: `rowkind topics | dead-letters`."""

from __future__ import annotations

from pathlib import Path

import click

from rowkind.service.cli.job_file import JOB, load_job, planned_queries


@click.group()
def topics() -> None:
    """The job's topics."""


@topics.command("create")
@JOB
def topics_create(job_file: Path) -> None:
    """Make the job's topics that are not there, and register the schemas of its sinks."""
    job = load_job(job_file)
    job.check_runnable()
    queries = planned_queries(job)
    from rowkind.service.run.topics import connect, create, register  # noqa: PLC0415 -- loaded when it is needed

    connection = connect(job)
    for name in create(job, queries, connection, sources=True):
        click.echo(f"made topic {name}")
    for sink in (sink for query in queries.values() for sink in query.sinks):
        register(sink, connection)
        click.echo(f"registered the schemas of topic {sink.topic}")
