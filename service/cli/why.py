"""The command `rowkind why`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, load_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowkind.service.why.sources import SourceChanges


@click.command(
    epilog=calls(
        "rowkind why job.yaml paid_orders 7",
        "rowkind why job.yaml order_lines order_id=7 line=2",
        "rowkind why job.yaml paid_orders 7 --changes",
        "rowkind why job.yaml paid_orders payment_id=7 -o json",
    )
)
@JOB
@click.argument("sink", shell_complete=names("sinks"))
@click.argument("key", nargs=-1, required=True)
@click.option("--changes", "with_changes", is_flag=True, help="Also show each change of the row, and what caused it.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    help="Print text or one JSON object.  [default: text on a terminal, otherwise json]",
)
def why(
    job_file: Path, sink: str, key: tuple[str, ...], *, with_changes: bool, form: Literal["text", "json"] | None
) -> None:
    """Show which source rows make the row KEY of the result SINK, or which step leaves the row out.

    KEY is the value of the sink's key, or conditions such as order_id=7 line=2, or a JSON object. If the sink has no
    key, the conditions may be on any of its columns.

    The topics of the tables are read up to their ends, and the rows that can matter are run through the query in
    memory. The job does not have to be running.
    """
    from rowkind.service.cli.why_output import document, text  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.external_table import opened, readable_topic  # noqa: PLC0415 -- as above
    from rowkind.service.plan.pipeline import plan  # noqa: PLC0415 -- as above
    from rowkind.service.why.answer import answer  # noqa: PLC0415 -- as above
    from rowkind.service.why.topics import TablesInKafka, check_topics  # noqa: PLC0415 -- as above
    from rowkind.service.why.wanted import wanted  # noqa: PLC0415 -- as above

    job = load_job(job_file)
    planned = plan(job, sink)
    check_topics(planned)
    job = opened(job)
    asked = wanted(planned, key)
    tables = TablesInKafka(job, _progress())
    topic: SourceChanges | None = None
    if planned.to == "topic" and tables.exists(planned.topic):
        topic = tables.read(readable_topic(job, sink), asked.atoms)
    found = answer(planned, asked, tables, topic, with_changes=with_changes)
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    if (form or ("text" if sys.stdout.isatty() else "json")) == "json":
        click.echo(json.dumps(document(planned, found), ensure_ascii=False))
    else:
        click.echo("\n".join(text(job, planned, found)))


def _progress() -> Callable[[str, int], None]:
    """Return a function that shows on a terminal how many records have been read."""

    def told(table: str, records: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[Kreading {table}: {records:,} records", nl=False, err=True)

    return told
