"""Commands for topics and dead letters: `rowkind topics | dead-letters`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rowkind.errors import REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, planned_queries
from rowkind.service.cli.row_output import OutputForm, RowOutput, row_output


@click.group()
def topics() -> None:
    """Create the job's topics, or take over topics from other jobs."""


@topics.command("create", epilog=calls("rowkind topics create job.yaml"))
@JOB
def topics_create(job_file: Path) -> None:
    """Create the job's missing topics, and register sink schemas."""
    job = load_job(job_file)
    job.check_runnable()
    queries = planned_queries(job)
    from rowkind.service.physical.node import topic_sinks  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.query.topics import connect, create, register  # noqa: PLC0415 -- as above

    connection = connect(job)
    for name in create(job, queries, connection, sources=True):
        click.echo(f"created topic {name}")
    for sink in topic_sinks(sink for query in queries.values() for sink in query.sinks):
        register(sink, connection)
        if sink.format == "avro":
            click.echo(f"registered the schemas of topic {sink.topic}")


@topics.command("release", epilog=calls("rowkind topics release job.yaml"))
@JOB
def topics_release(job_file: Path) -> None:
    """Take over the job's result topics from other jobs that write to them.

    A job that was deleted or renamed keeps its claim to its topics until another job takes them over. If the other job
    is still running, it stops.
    """
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.kafka.topic_claims import release  # noqa: PLC0415 -- loaded when it is needed

    released = list(release(job.brokers, {sink.topic for sink in job.topic_sinks.values()}, job.name))
    for topic, holder in released:
        click.echo(f"took over topic {topic} from job {holder}")
    if not released:
        click.echo("no other job writes to the topics of this job")


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show or replay dead letters.

    Dead letters are records that could not be decoded, and rows on which an operator failed.
    """


@dead_letters.command("list", epilog=calls("rowkind dead-letters list job.yaml"))
@JOB
@row_output
def list_letters(job_file: Path, form: OutputForm | None) -> None:
    """List the dead letters."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.run.dead_letters import letters  # noqa: PLC0415 -- loaded when it is needed

    shown = RowOutput(form, ("letter", "time", "origin", "stage", "replayed", "message"))
    for each in letters(job):
        shown.add_row(each.summary)
    shown.flush()


@dead_letters.command("show", epilog=calls("rowkind dead-letters show job.yaml 0:17"))
@JOB
@click.argument("place", metavar="LETTER")
def show_letter(job_file: Path, place: str) -> None:
    """Show a dead letter with the original key, value and headers. LETTER is PARTITION:OFFSET, as in the list."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.avro.framing import KEY_HEADER, VALUE_HEADER  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.job.registry import open_registry  # noqa: PLC0415 -- as above
    from rowkind.service.run.dead_letters import letter, readable  # noqa: PLC0415 -- as above

    found, registry = letter(job, place), open_registry(job)
    record = found.record
    told = found.summary | {
        "error": found.told.get("exception.class.name"),
        "query": found.told.get("task.id"),
        "headers": [
            [name, None if value is None else value.decode(errors="replace")] for name, value in record.headers
        ],
        "key": readable(record.key, record.header(KEY_HEADER), registry),
        "value": readable(record.value, record.header(VALUE_HEADER), registry),
    }
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))


@dead_letters.command(
    "replay",
    epilog=calls("rowkind dead-letters replay job.yaml 0:17 0:18", "rowkind dead-letters replay job.yaml --all"),
)
@JOB
@click.argument("places", nargs=-1, metavar="[LETTER]…")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Replay all records that could not be decoded, but not rows on which an operator failed.",
)
def replay_letters(job_file: Path, places: tuple[str, ...], *, every: bool) -> None:
    """Send the original records of dead letters back to their topics.

    Each record is sent only once, and the job then reads it again.
    """
    if bool(places) == every:
        fail(
            "name the dead letters to replay, as PARTITION:OFFSET from `rowkind dead-letters list`, or use --all",
            REFUSED,
        )
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.run.dead_letters import replay  # noqa: PLC0415 -- loaded when it is needed

    sent = replay(job, places)
    for each in sent:
        click.echo(f"replayed {each.place} to {each.summary['origin']}")
    click.echo(
        f"{counted(len(sent), 'dead letter')} replayed"
        if sent
        else "nothing to replay: everything has been replayed already"
    )
