"""Commands that write rows to topics and read them: `rowkind produce | consume`."""

from __future__ import annotations

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
from rowkind.service.cli.row_output import OutputForm, RowOutput, numbers, row_output, with_row

if TYPE_CHECKING:
    from rowkind.avro.schema import Record
    from rowkind.operators.columns.changes import Rows

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
        "rowkind generate job.yaml --table orders --column 'status: [open, paid]' --column 'customer: {max: 9}'",
    )
)
@JOB
@click.option("--table", required=True, shell_complete=names("tables"), help="Write to the topic of this table.")
@click.option("--rate", type=float, default=1_000.0, show_default=True, help="Changes per second.")
@click.option("--rows", type=int, help="Stop after this many changes.  [default: never]")
@click.option(
    "--column", "columns", multiple=True, help="The values of a column, as in a job file; see `generate` there."
)
@click.option("--updates", type=float, help="Share of changes that update a row.  [default: 0.3]")
@click.option("--deletes", type=float, help="Share of changes that delete a row.  [default: 0.1]")
@click.option("--late", type=float, help="Share of rows with times of 10 minutes ago.  [default: 0]")
@click.option("--keys", type=int, help="Only so many of the latest rows are changed.  [default: 10000]")
@click.option("--skew", type=float, help="Zipf's exponent for the choice of the changed row.  [default: 0]")
@click.option("--seed", type=int, help="Equal seeds give equal changes, except for times.  [default: 0]")
def generate(
    job_file: Path, table: str, *, rate: float, rows: int | None, columns: tuple[str, ...], **shares: float | None
) -> None:
    """Write random changes to the topic of a table until Ctrl-C.

    Key columns with whole numbers are counted up. Other values are random, by the column's type; times are the present.
    An append table gets insertions only.
    """
    from rowkind.service.client.generate import settings, write  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.produce import Producer  # noqa: PLC0415 -- as above

    given = {name: value for name, value in shares.items() if value is not None}
    sent = 0
    with Producer(load_job(job_file), table) as producer:
        of = settings(producer.table, {"rows_per_second": rate, "number_of_rows": rows, **given}, columns)
        with suppress(KeyboardInterrupt):
            for sent in write(producer, of):  # noqa: B007 -- it is printed after the loop
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
    shown, folded = RowOutput(form, columns if fold else with_row(["op"], columns), numbers(of.declared)), TopicFold(of)
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
        shown.add_row(row)
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
