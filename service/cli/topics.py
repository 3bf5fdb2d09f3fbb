"""Commands about topics and what lies in them: `rowkind topics | dead-letters`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from rowkind.errors import REFUSED
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, planned_queries


@click.group()
def topics() -> None:
    """The job's topics."""


@topics.command("create", epilog=calls("rowkind topics create job.yaml"))
@JOB
def topics_create(job_file: Path) -> None:
    """Make the job's topics that are not there, and register the schemas of its sinks."""
    job = load_job(job_file)
    job.check_runnable()
    queries = planned_queries(job)
    from rowkind.service.query.topics import connect, create, register  # noqa: PLC0415 -- loaded when it is needed

    connection = connect(job)
    for name in create(job, queries, connection, sources=True):
        click.echo(f"made topic {name}")
    for sink in (sink for query in queries.values() for sink in query.sinks):
        register(sink, connection)
        if sink.format == "avro":
            click.echo(f"registered the schemas of topic {sink.topic}")


@topics.command("release", epilog=calls("rowkind topics release job.yaml"))
@JOB
def topics_release(job_file: Path) -> None:
    """Take the result topics of the job from other jobs that write them.

    A job that was deleted or renamed keeps its topics until then. If it still runs, it stops.
    """
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.kafka.topic_claims import release  # noqa: PLC0415 -- loaded when it is needed

    released = list(release(job.brokers, {sink.topic for sink in job.sinks.values()}, job.name))
    for topic, holder in released:
        click.echo(f"took topic {topic} from job {holder}")
    if not released:
        click.echo("no other job writes the topics of this job")


@click.group("dead-letters")
def dead_letters() -> None:
    """What the job could not take: records that are no rows, and rows on which something failed."""


@dead_letters.command("list", epilog=calls("rowkind dead-letters list job.yaml"))
@JOB
def list_letters(job_file: Path) -> None:
    """List the dead letters: on a terminal a line each, elsewhere as JSON lines."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.run.dead_letters import letters  # noqa: PLC0415 -- loaded when it is needed

    for each in letters(job):
        told = each.summary
        if not sys.stdout.isatty():
            click.echo(json.dumps(told, ensure_ascii=False))
            continue
        back = click.style("  sent back", fg="green") if each.replayed else ""
        place = click.style(f"{told['letter']:>9}", bold=True)
        origin = told["origin"] or "from another operator"
        click.echo(
            f"{place}  {told['time']}  {origin}  {click.style(told['stage'], fg='red')}: {told['message']}{back}"
        )


@dead_letters.command("show", epilog=calls("rowkind dead-letters show job.yaml 0:17"))
@JOB
@click.argument("place", metavar="LETTER")
def show_letter(job_file: Path, place: str) -> None:
    """Show a dead letter, PARTITION:OFFSET as the list has it, with the key, value and headers of the original."""
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
    "--all", "every", is_flag=True, help="All records that were no row; not those that only one query failed on."
)
def replay_letters(job_file: Path, places: tuple[str, ...], *, every: bool) -> None:
    """Send the originals of dead letters back to their topics, each once, to be read again."""
    if bool(places) == every:
        fail("say which dead letters are to be sent back, PARTITION:OFFSET as the list has them, or --all", REFUSED)
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.run.dead_letters import replay  # noqa: PLC0415 -- loaded when it is needed

    sent = replay(job, places)
    for each in sent:
        click.echo(f"sent back {each.place}, to {each.summary['origin']}")
    click.echo(f"{len(sent)} sent back" if sent else "nothing to send back: all of it was, before")
