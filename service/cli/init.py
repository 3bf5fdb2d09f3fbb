"""`rowkind init`: a job file for existing topics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowkind.errors import FAILED, REFUSED
from rowkind.service.cli.job_file import calls, fail

if TYPE_CHECKING:
    from rowkind.avro.registry import Registry
    from rowkind.service.client.draft import TableDraft


@click.command(
    epilog=calls(
        "rowkind init orders payments -o job.yaml",
        "rowkind init --kafka broker:9092 --registry http://registry:8081 orders",
        "rowkind init --key customers=id customers",
    )
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]…")
@click.option("--kafka", default="127.0.0.1:9092", show_default=True, metavar="SERVERS", help="The brokers.")
@click.option("--registry", metavar="URL", help="The schema registry.  [default: none]")
@click.option(
    "--key", "keys", multiple=True, metavar="TOPIC=COLUMN,…", help="The columns that identify a topic's rows."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the job file here.")
def init(topics: Sequence[str], kafka: str, registry: str | None, keys: Sequence[str], output: Path | None) -> None:
    """Write a job file with a table for each TOPIC, from its schemas, settings and first records.

    The mode of a table is a guess; a comment gives the reason. On a terminal, the command asks for keys that it cannot
    find. The job has one query, which you replace with yours.
    """
    from rowkind.avro.registry import NoRegistry  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.draft import draft, sampled  # noqa: PLC0415 -- as above
    from rowkind.service.job.load import loaded  # noqa: PLC0415 -- as above

    settings = {"bootstrap.servers": kafka}
    if not topics:
        fail(f"name at least one topic; the topics are {', '.join(_topics(settings)) or 'none'}", REFUSED)
    if output is not None and output.exists():
        fail(f"{output} already exists: choose another name", REFUSED)
    given = dict(each.partition("=")[::2] for each in keys)
    known: Registry = NoRegistry()
    if registry is not None:
        from rowkind.avro.confluent_registry import ConfluentRegistry  # noqa: PLC0415 -- loads slowly

        known = ConfluentRegistry({"url": registry})
    tables = []
    for name in topics:
        topic = sampled(settings, known, name)
        table = draft(topic, _columns(given.get(name, "")))
        tables.append(draft(topic, _asked(table)) if table.needs_key else table)
    text = _job(output.stem if output else "job", kafka, registry, tables)
    loaded(text, output or Path("job.yaml"))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        fail(f"{output}: the job file cannot be written: {error.strerror}", FAILED)
    click.echo(f"wrote {output}: change its query, then run `rowkind check {output}`")


def _topics(settings: dict[str, str]) -> list[str]:
    from rowkind.service.kafka.topics import names  # noqa: PLC0415 -- loaded when it is needed

    return sorted(name for name in names(settings) if not name.startswith("_"))


def _asked(table: TableDraft) -> list[str]:
    """Return the key that the user types; without a terminal, the command ends with the option to use."""
    if not sys.stdin.isatty():
        fail(
            f"topic {table.topic} does not say which columns identify its rows: add --key {table.topic}=COLUMN,… with "
            f"some of {', '.join(table.columns)}",
            REFUSED,
        )
    return _columns(
        click.prompt(f"Which columns identify a row of {table.topic}? ({', '.join(table.columns)})", err=True)
    )


def _columns(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _job(name: str, kafka: str, registry: str | None, tables: Sequence[TableDraft]) -> str:
    first = tables[0]
    mode = "append" if first.mode == "append" else "upsert" if first.key else "retract"
    lines = [f"job: {name}", f'kafka: {{bootstrap.servers: "{kafka}"}}']
    lines += [f'registry: {{url: "{registry}"}}'] if registry else ["registry: {folder: schemas}"]
    lines += [f"checkpoint: {name}-checkpoint", "tables:", *(line for table in tables for line in table.lines())]
    lines += [
        "sinks:",
        "  # Replace this query with yours.",
        "  result:",
        f"    topic: {name}-result",
        f"    mode: {mode}",
    ]
    lines += [f"    key: [{', '.join(first.key)}]"] if first.key else []
    lines += [f"    sql: SELECT * FROM {first.name}"]  # noqa: S608 - the user's own query
    return "\n".join([*lines, ""])
