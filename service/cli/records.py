"""Commands that write rows to topics and read them: `rowkind produce | consume`."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowkind.errors import REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, warn
from rowkind.service.cli.row_output import OutputForm, RowOutput, numbers, row_output

if TYPE_CHECKING:
    from rowkind.avro.schema import Record
    from rowkind.operators.columns.changes import Rows

_SHARE = click.FloatRange(0, 1)
_TICK_SECONDS = 0.1
"""The time between two groups of generated changes."""


@click.command(
    epilog=calls(
        'echo \'{"order_id": 1, "amount": "9.50"}\' | rowkind produce job.yaml orders',
        "rowkind produce job.yaml orders changes.jsonl",
    )
)
@JOB
@click.argument("table", shell_complete=names("tables"))
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
def produce(job_file: Path, table: str, file: Any) -> None:
    """Write rows to the topic of TABLE. They are read from FILE or standard input, one JSON object per line.

    A line is either a row to insert, or a change such as {"op": "-D", "row": {…}}, as `consume` prints it. On a
    terminal, each line is sent at once, and an invalid line is reported without ending the command.
    """
    from rowkind.service.client.external_table import OutsideError  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.produce import Producer  # noqa: PLC0415 -- as above

    typed, sent = file.isatty(), 0
    with Producer(load_job(job_file), table) as producer:
        if typed:
            columns = ", ".join(f"{column.name} {column.type.sql}" for column in producer.table.declared.fields)
            click.echo(f"Type rows of {table}, one JSON object per line, until Ctrl-D: {columns}", err=True)
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    kind, row = _change(line)
                    producer.send(kind, row)
                except OutsideError as error:
                    if typed:
                        warn(str(error))
                        continue
                    producer.flush()
                    fail(f"{file.name}:{number}: {error}. Rows sent before it: {sent:,}", REFUSED)
                if typed:
                    producer.flush()
                    click.echo(f"sent {kind}", err=True)
                sent += 1
    click.echo(f"{counted(sent, 'row')} sent", err=True)


@click.command(
    epilog=calls(
        "rowkind generate job.yaml --table orders --rate 1000",
        "rowkind generate job.yaml --table orders --rows 100000 --updates 0.5 --skew 1.1",
    )
)
@JOB
@click.option("--table", required=True, shell_complete=names("tables"), help="Write to the topic of this table.")
@click.option("--rate", default=1_000.0, show_default=True, type=click.FloatRange(min=0.1), help="Changes per second.")
@click.option("--rows", type=click.IntRange(min=1), help="Stop after this many changes.  [default: never]")
@click.option("--updates", default=0.3, show_default=True, type=_SHARE, help="Share of changes that update a row.")
@click.option("--deletes", default=0.1, show_default=True, type=_SHARE, help="Share of changes that delete a row.")
@click.option(
    "--nulls", default=0.0, show_default=True, type=_SHARE, help="Share of NULL values where NULL is allowed."
)
@click.option("--late", default=0.0, show_default=True, type=_SHARE, help="Share of rows with times of 10 minutes ago.")
@click.option("--keys", default=10_000, show_default=True, type=click.IntRange(min=1), help="Maximum number of rows.")
@click.option("--skew", default=0.0, show_default=True, type=click.FloatRange(0, 5), help="Zipf's exponent of updates.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds give equal changes, except for times.")
def generate(job_file: Path, table: str, *, rate: float, rows: int | None, seed: int, **shares: Any) -> None:
    """Write random changes to the topic of a table until Ctrl-C.

    Key columns with whole numbers are counted up. Other values are random, by the column's type; times are the present.
    An append table gets insertions only.
    """
    from rowkind.service.client.generate import ChangeGenerator, Composition  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.produce import Producer  # noqa: PLC0415 -- as above

    sent, began = 0, time.monotonic()
    with Producer(load_job(job_file), table) as producer:
        changes = iter(
            ChangeGenerator(
                producer.table.declared, producer.table.primary_key, producer.table.mode, Composition(**shares), seed
            )
        )
        with suppress(KeyboardInterrupt):
            while rows is None or sent < rows:
                due = int((time.monotonic() - began) * rate) + 1
                for kind, row in itertools.islice(changes, min(due, rows or due) - sent):
                    producer.send(kind, row)
                    sent += 1
                producer.flush()
                time.sleep(_TICK_SECONDS)
    click.echo(f"{counted(sent, 'change')} sent", err=True)


def _change(line: str) -> tuple[str, Any]:
    from rowkind.avro.json_rows import parse_line  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.external_table import OutsideError  # noqa: PLC0415 -- as above

    try:
        found = parse_line(line.strip())
    except (ValueError, RecursionError) as error:
        raise OutsideError(f"the line is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise OutsideError('expected a row, {"column": …}, or {"op": "+I", "row": {…}}')
    if isinstance(found.get("row"), dict) and found.keys() <= {"op", "row"}:
        return str(found.get("op", "+I")), found["row"]
    return "+I", found


@click.command(
    epilog=calls("rowkind consume job.yaml paid_orders --follow", "rowkind consume job.yaml paid_orders --fold")
)
@JOB
@click.argument("name", shell_complete=names("sinks", "tables"))
@click.option("--follow", "-f", is_flag=True, help="Wait for more changes until Ctrl-C.")
@click.option("--fold", is_flag=True, help="Print the current rows instead of the changes.")
@row_output
def consume(job_file: Path, name: str, *, follow: bool, fold: bool, form: OutputForm | None) -> None:
    """Print the committed changes of the sink or table NAME."""
    if follow and fold:
        fail("--fold and --follow cannot be combined: --fold prints the current rows and ends", REFUSED)
    from rowkind.avro.json_rows import decode  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.consume import TopicFold, read  # noqa: PLC0415 -- as above
    from rowkind.service.client.external_table import opened, readable_topic  # noqa: PLC0415 -- as above

    job = opened(load_job(job_file))
    of = readable_topic(job, name)
    columns = [column.name for column in of.declared.fields]
    shown, folded = RowOutput(form, columns if fold else ["op", *columns], numbers(of.declared)), TopicFold(of)
    try:
        for chunk in read(job, of, follow=follow, tolerate=True):
            for letter in chunk.letters:
                warn(f"offset {letter.offset} of partition {letter.partition} cannot be decoded: {letter.message}")
            if fold:
                folded.add(chunk.rows)
            else:
                _show(shown, chunk.rows, of.declared, of.primary_key if of.mode == "upsert" else ())
    except KeyboardInterrupt:
        return
    for row in sorted(decode(of.declared, folded.payload), key=json.dumps) if fold else ():
        shown.add(row)
    shown.flush()


def _show(shown: RowOutput, rows: Rows, record: Record, key: tuple[str, ...]) -> None:
    from rowkind.avro.json_rows import decode  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.operators.changelog import SYMBOLS  # noqa: PLC0415 -- as above

    for kind, row in zip(rows.kind.tolist(), decode(record, rows.payload), strict=True):
        symbol = SYMBOLS[kind]
        # A delete of an upsert topic has only the key.
        only_key = key and symbol == "-D"
        shown.add({"op": symbol, "row": {name: row[name] for name in key} if only_key else row})
    shown.flush()
