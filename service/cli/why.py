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

    from rowkind.service.job.model import Job
    from rowkind.service.physical.node import PhysicalSink
    from rowkind.service.physical.source_table import SourceTable
    from rowkind.service.verify.cut import BatchCut
    from rowkind.service.why.answer import RowExplanation
    from rowkind.service.why.wanted import WantedRow


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

    The topics of the tables are read up to the end of the job's last batch, and the rows that can matter are run
    through the query in memory. If the job has not written a batch of the sink yet, the topics are read up to their
    ends. The job does not have to be running.
    """
    from rowkind.service.cli.why_output import document, text  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.external_table import opened, readable_topic  # noqa: PLC0415 -- as above
    from rowkind.service.plan.pipeline import plan  # noqa: PLC0415 -- as above
    from rowkind.service.why.topics import check_topics  # noqa: PLC0415 -- as above
    from rowkind.service.why.wanted import wanted  # noqa: PLC0415 -- as above

    job = load_job(job_file)
    planned = plan(job, sink)
    check_topics(planned)
    job = opened(job)
    asked = wanted(planned, key)
    topic = readable_topic(job, sink) if planned.to == "topic" else None
    batch, found = _explained(job, planned, asked, topic, with_changes=with_changes)
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    if (form or ("text" if sys.stdout.isatty() else "json")) == "json":
        click.echo(json.dumps(document(planned, found, batch), ensure_ascii=False))
    else:
        click.echo("\n".join(text(job, planned, found, batch)))


def _explained(
    job: Job, sink: PhysicalSink, asked: WantedRow, result: SourceTable | None, *, with_changes: bool
) -> tuple[BatchCut | None, RowExplanation]:
    """Return the job's last batch of the sink, and the answer as of its end.

    A batch may be in the middle of its commits, so that the result's topic has only a part of it. If the topic differs
    from the answer, a batch that is known to be complete is therefore waited for, and the answer is computed again.
    """
    from rowkind.service.verify.cut import NoCutError, find_cut, last_batch, progress_of_sinks  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.why.answer import answer  # noqa: PLC0415 -- as above
    from rowkind.service.why.topics import TablesInKafka  # noqa: PLC0415 -- as above

    found: RowExplanation | None = None
    written = progress_of_sinks(job.brokers, job.name).get(sink.name)
    topics = [result.topic] if result is not None else []
    batch = None if written is None else last_batch(job.brokers, written[0], topics)
    while True:
        ends = {} if batch is None else {**batch.sources, **batch.results}
        tables = TablesInKafka(job, _progress(), ends)
        there = result is not None and tables.exists(result.topic)
        topic = tables.read(result, asked.atoms) if there and result is not None else None
        now = None if batch is None else batch.batches[-1].now
        before, found = found, answer(sink, asked, tables, topic, with_changes=with_changes, now=now)
        if batch is None or written is None or before is not None or not found.topic_differs:
            return batch, found
        try:
            batch = find_cut(job.brokers, written[0], topics)
        except NoCutError:
            return batch, found


def _progress() -> Callable[[str, int], None]:
    """Return a function that shows on a terminal how many records have been read."""

    def told(table: str, records: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[Kreading {table}: {records:,} records", nl=False, err=True)

    return told
