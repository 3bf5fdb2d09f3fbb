"""The columns of a table, from the job file, a schema file or the registry."""

from __future__ import annotations

from dataclasses import replace

from rowkind.avro.errors import AvroError, RegistryUnreachableError
from rowkind.avro.schema import Record
from rowkind.avro.ticks import ticks
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.model import Job


def declared(job: Job, table: str) -> Record:
    """Return the columns of a table's rows as the job reads them. The columns of the primary key are NOT NULL.

    Raises:
        JobError: The columns, the primary key, the units or the key format are not valid.
        RegistryUnreachableError: The registry does not answer.
    """
    of = job.tables[table]
    record = as_written(job, table).plain
    for column in of.primary_key:
        if column not in record.names:
            raise _error(
                job,
                table,
                "primary_key",
                f"the primary key has {column!r}, which is not a column; the columns are {', '.join(record.names)}",
            )
        if not record.type(column).orderable:
            raise _error(
                job, table, "primary_key", f"{column!r} is {record.type(column).sql}, which cannot be used as a key"
            )
    for column in of.units:
        _check_unit(job, table, record, column)
    if of.generate is not None:
        problem = of.generate.problem(record, of.primary_key)
        if problem is not None:
            raise _error(job, table, "generate", problem)
    if of.key_format == "long" and record.type(of.primary_key[0]).sql != "BIGINT":
        of_key = f"{of.primary_key[0]!r} is {record.type(of.primary_key[0]).sql}"
        raise _error(job, table, "key.format", f"`key.format: long` needs a BIGINT key, but {of_key}")
    return replace(
        record,
        fields=tuple(
            replace(field, type=field.type.required, default=None) if field.name in of.primary_key else field
            for field in record.fields
        ),
    )


def _check_unit(job: Job, table: str, record: Record, column: str) -> None:
    """Raise JobError if the column does not exist, has no unit, or cannot have this unit."""
    unit = job.tables[table].units[column]
    if column not in record.names:
        there = ", ".join(record.names)
        raise _error(job, table, "units", f"`units` has {column!r}, which is not a column; the columns are {there}")
    type_ = record.type(column)
    counts = ticks(type_)
    if counts is None:
        raise _error(job, table, "units", f"{column!r} is {type_.sql}: only a DATE, TIME or TIMESTAMP has a unit")
    if (counts.of == "date") != (unit == "days"):
        expected = "days" if counts.of == "date" else "seconds, millis, micros or nanos"
        raise _error(job, table, "units", f"{column!r} is {type_.sql}, whose unit must be {expected}, not {unit}")


def as_written(job: Job, table: str) -> Record:
    """Return the columns of a table as the job, a schema file or the registry declares them.

    Raises the same errors as `declared`.
    """
    of = job.tables[table]
    try:
        if of.generate is not None and of.columns is None and of.schema_file is None:
            raise _error(job, table, "generate", "a generated table needs its columns: set `columns` or `schema`")
        if of.columns is not None:
            return Record.of(of.columns, name=table)
        if of.schema_file is not None:
            return _from_file(job, table, of.schema_file)
        if job.registry is None:
            raise _error(
                job,
                table,
                "",
                "the columns are unknown: set `columns` or `schema` in the table, or `registry` in the job",
            )
        return _from_registry(job, table)
    except RegistryUnreachableError:
        raise  # This is not an error in the job file.
    except AvroError as error:
        raise _error(job, table, "schema" if of.schema_file else "columns" if of.columns else "", str(error)) from None


def _from_file(job: Job, table: str, name: str) -> Record:
    try:
        text = (job.file.parent / name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _error(job, table, "schema", f"the schema file {name} cannot be read: {reason}") from None
    record = Record.parse(text)
    if record.bare:
        raise _error(job, table, "schema", f"the schema file {name} does not contain a record")
    return record


def _from_registry(job: Job, table: str) -> Record:
    from rowkind.service.job.registry import open_registry  # noqa: PLC0415 -- the client loads slowly

    of = job.tables[table]
    record = open_registry(job).latest(f"{of.topic}-value")
    if of.mode != "debezium":
        return record
    row = row_of_envelope(record)
    if row is None:
        raise _error(
            job,
            table,
            "mode",
            f"the registry's schema of topic {of.topic} is not a Debezium envelope: it has no `after`",
        )
    return row


def row_of_envelope(record: Record) -> Record | None:
    """Return the columns of the rows in Debezium's envelopes with this schema; None if it is no envelope."""
    if "after" not in record.names or record.type("after").kind != "record":
        return None
    row = record.type("after")
    return Record(row.name, row.fields)


def _error(job: Job, table: str, field: str, text: str) -> JobError:
    path = ("tables", table, *([field] if field else []))
    return JobError(str(job.file), [Problem(job.line(*path), ".".join(path), text)])
