"""Commands that write rows to topics and read them: `rowkind produce | consume`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowkind.errors import REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, warn

if TYPE_CHECKING:
    from rowkind.avro.schema import Record
    from rowkind.operators.columns.changes import Rows

_COLOURS = {"+I": "green", "+U": "green", "-U": "yellow", "-D": "red"}


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
    """Write rows to the topic of TABLE. The rows are read from FILE or standard input, one JSON object per line.

    A line is either a row to insert, or a change such as {"op": "-D", "row": {…}}, as `consume` prints it.
    """
    from rowkind.service.client.external_table import OutsideError  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.produce import Producer  # noqa: PLC0415 -- as above

    sent = 0
    with Producer(load_job(job_file), table) as producer:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    producer.send(*_change(line))
                except OutsideError as error:
                    producer.flush()
                    fail(f"{file.name}:{number}: {error}. Rows sent before it: {sent:,}", REFUSED)
                sent += 1
    click.echo(f"{counted(sent, 'row')} sent", err=True)


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
def consume(job_file: Path, name: str, *, follow: bool, fold: bool) -> None:
    """Print the committed changes of the sink or table NAME.

    If the output is not a terminal, JSON lines are printed.
    """
    if follow and fold:
        fail("--fold and --follow cannot be combined: --fold prints the current rows and ends", REFUSED)
    from rowkind.service.client.consume import TopicFold, read  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.external_table import opened, readable_topic  # noqa: PLC0415 -- as above

    job = opened(load_job(job_file))
    of = readable_topic(job, name)
    folded = TopicFold(of)
    try:
        for chunk in read(job, of, follow=follow, tolerate=True):
            for letter in chunk.letters:
                warn(f"offset {letter.offset} of partition {letter.partition} cannot be decoded: {letter.message}")
            if fold:
                folded.add(chunk.rows)
            else:
                _print(chunk.rows, of.declared, of.primary_key if of.mode == "upsert" else ())
    except KeyboardInterrupt:
        return
    if fold:
        _print_rows(of.declared, folded.payload)


def _print(rows: Rows, record: Record, key: tuple[str, ...]) -> None:
    from rowkind.avro.json_rows import decode  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.operators.changelog import SYMBOLS  # noqa: PLC0415 -- as above

    for kind, row in zip(rows.kind.tolist(), decode(record, rows.payload), strict=True):
        symbol = SYMBOLS[kind]
        if key and symbol == "-D":
            row = {name: row[name] for name in key}  # noqa: PLW2901 -- a delete of an upsert topic has only the key
        if sys.stdout.isatty():
            text = json.dumps(row, ensure_ascii=False)
            click.echo(click.style(f"{symbol}  {text}", fg=_COLOURS[symbol]))
        else:
            click.echo(json.dumps({"op": symbol, "row": row}, ensure_ascii=False))
    sys.stdout.flush()


def _print_rows(record: Record, payload: Any) -> None:
    from rowkind.avro.json_rows import decode  # noqa: PLC0415 -- loaded when it is needed

    for row in sorted(decode(record, payload), key=json.dumps):
        click.echo(json.dumps(row, ensure_ascii=False))
