"""Print the result of a query in DuckDB's SQL: as a table, CSV, JSON lines, Markdown or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import click

from rowkind.errors import REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.job_file import fail, warn
from rowkind.service.cli.row_output import RowOutput, text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rowkind.service.client.job_tables import JobTables, QueryResult

QueryForm = Literal["table", "csv", "json", "parquet", "markdown"]
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EARLIEST_DATE, _LATEST_DATE = -(2**31) + 1, 2**31 - 1
_EARLIEST_TIME, _LATEST_TIME = -(2**63) + 1, 2**63 - 1


def print_result(result: QueryResult, form: QueryForm | None) -> None:
    """Print a result. Without a form, it is a table on a terminal, and JSON lines otherwise. Raises QueryError."""
    if not result.columns:
        return
    match form:
        case "parquet":
            _write_parquet(result)
        case "markdown":
            _print_markdown(result)
        case _:
            shown = RowOutput(form, result.columns, result.numbers)
            for row in rows(result):
                shown.add_row(row)
            shown.flush()


def warn_of_undecodable(tables: JobTables) -> None:
    """Print a warning for each table in which more records cannot be decoded than at the last call."""
    for name, (count, first) in tables.undecodable().items():
        are = "is" if count == 1 else "are"
        warn(f"{counted(count, 'record')} of {name} cannot be decoded and {are} left out; the first is {first}")


def rows(result: QueryResult) -> Iterator[dict[str, Any]]:
    """Yield the rows of a result, with JSON values. Raises QueryError."""
    whole = [type_.endswith("HUGEINT") for type_ in result.types]
    for batch in result.batches:
        columns = [
            [None if each is None else int(each) for each in column.to_pylist()] if is_whole else json_values(column)
            for column, is_whole in zip(batch.columns, whole, strict=True)
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(result.columns, row, strict=True))


def json_values(column: pa.Array) -> list[Any]:
    """Return a column's values as JSON values, in the same forms as `rowkind consume` prints them."""
    import pyarrow as pa  # noqa: PLC0415 -- loaded when it is needed

    from rowkind.avro.to_json import slices  # noqa: PLC0415 -- as above

    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = [json_values(column.field(number)) for number in range(len(names))]
        there = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if is_ else None for is_, *row in zip(there, *parts, strict=True)]
    if pa.types.is_map(column.type):
        entries = list(zip(map(str, column.keys.to_pylist()), json_values(column.items), strict=True))
        return [None if each is None else dict(each) for each in slices(entries, column)]
    if pa.types.is_list(column.type):
        return slices(json_values(column.values), column)
    plain, write = _writer(column)
    return [None if value is None else write(value) for value in plain.to_pylist()]


def _writer(column: pa.Array) -> tuple[pa.Array, Callable[[Any], Any]]:
    """Return a column in a form with Python values for all its values, and a function that makes them JSON values."""
    import pyarrow as pa  # noqa: PLC0415 -- as above

    from rowkind.avro.time_text import PER_SECOND, date_text, moment_text, time_text  # noqa: PLC0415 -- as above
    from rowkind.avro.to_json import base64_text, json_float  # noqa: PLC0415 -- as above

    type_ = column.type
    if pa.types.is_timestamp(type_):
        per_second, zone = _UNITS[type_.unit], "Z" if type_.tz else ""
        return column.cast(
            pa.int64()
        ), lambda since: _infinity(since, _EARLIEST_TIME, _LATEST_TIME) or moment_text(since, per_second) + zone
    if pa.types.is_date32(type_):
        ends = _EARLIEST_DATE, _LATEST_DATE
        return column.cast(pa.int32()), lambda days: _infinity(days, *ends) or date_text(days)
    if pa.types.is_time64(type_):
        return column.cast(pa.int64()), lambda since: time_text(since, PER_SECOND["micros"])
    if pa.types.is_decimal(type_):
        return column, lambda value: f"{value:f}"
    if pa.types.is_floating(type_):
        return column, json_float
    if pa.types.is_binary(type_):
        return column, base64_text
    return column, lambda value: value


def _infinity(value: int, earliest: int, latest: int) -> str | None:
    return "-infinity" if value == earliest else "infinity" if value == latest else None


def _print_markdown(result: QueryResult) -> None:
    """Print a table in Markdown. Columns with numbers are aligned to the right."""
    click.echo(f"| {' | '.join(map(_marked, result.columns))} |")
    click.echo(f"|{'|'.join('---:' if name in result.numbers else '---' for name in result.columns)}|")
    for row in rows(result):
        click.echo(f"| {' | '.join('NULL' if value is None else _marked(value) for value in row.values())} |")


def _marked(value: Any) -> str:
    return text_of(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _write_parquet(result: QueryResult) -> None:
    """Write a result to standard output as a Parquet file. Refuse to write it to a terminal."""
    if sys.stdout.isatty():
        fail("a Parquet file cannot be shown on a terminal: redirect it, as in `-o parquet > rows.parquet`", REFUSED)
    from pyarrow import parquet  # noqa: PLC0415 -- as above

    # `parquet.ParquetWriter` leaves a file open that it did not open itself.
    with parquet.ParquetWriter(sys.stdout.buffer, result.schema) as writer:
        for batch in result.batches:
            writer.write_batch(batch)
