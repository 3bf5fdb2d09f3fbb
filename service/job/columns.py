"""Which columns a table has: as the job says, as a schema file says, or as the registry says."""

from __future__ import annotations

from dataclasses import replace

from rowkind.avro.errors import AvroError, RegistryUnreachableError
from rowkind.avro.schema import Record
from rowkind.avro.ticks import ticks
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.model import Job


def declared(job: Job, table: str) -> Record:
    """The columns of a table as its rows are read, the primary key NOT NULL.

    Raises:
        JobError, RegistryUnreachableError: Each with a message for the user.
    """
    of = job.tables[table]
    record = as_written(job, table).plain
    for column in of.primary_key:
        if column not in record.names:
            raise _error(
                job,
                table,
                "primary_key",
                f"the primary key names {column!r}, which is not among the columns {', '.join(record.names)}",
            )
        if not record.type(column).orderable:
            raise _error(job, table, "primary_key", f"{column!r} is {record.type(column).sql}, which cannot be a key")
    for column in of.units:
        _check_unit(job, table, record, column)
    if of.key_format == "long" and record.type(of.primary_key[0]).sql != "BIGINT":
        of_key = f"{of.primary_key[0]!r} is {record.type(of.primary_key[0]).sql}"
        raise _error(job, table, "key.format", f"`key.format: long` is a BIGINT, but {of_key}")
    return replace(
        record,
        fields=tuple(
            replace(field, type=field.type.required, default=None) if field.name in of.primary_key else field
            for field in record.fields
        ),
    )


def _check_unit(job: Job, table: str, record: Record, column: str) -> None:
    """Raise JobError for a unit of a column that is not there, or that is no date or time."""
    unit = job.tables[table].units[column]
    if column not in record.names:
        there = ", ".join(record.names)
        raise _error(job, table, "units", f"`units` names {column!r}, which is not among the columns {there}")
    type_ = record.type(column)
    counts = ticks(type_)
    if counts is None:
        raise _error(job, table, "units", f"{column!r} is {type_.sql}: only a DATE, TIME or TIMESTAMP has a unit")
    if (counts.of == "date") != (unit == "days"):
        expected = "days" if counts.of == "date" else "seconds, millis, micros or nanos"
        raise _error(job, table, "units", f"{column!r} is {type_.sql}, whose unit is {expected}, and not {unit}")


def as_written(job: Job, table: str) -> Record:
    """The columns of a table as the job, a schema file or the registry has them. Raises as `declared` does."""
    of = job.tables[table]
    try:
        if of.columns is not None:
            return Record.of(of.columns, name=table)
        if of.schema_file is not None:
            return _from_file(job, table, of.schema_file)
        if job.registry is None:
            raise _error(
                job,
                table,
                "",
                "nothing says which columns it has: give `columns`, a `schema` file, or the job a `registry`",
            )
        return _from_registry(job, table)
    except RegistryUnreachableError:
        raise  # No fault of the job.
    except AvroError as error:
        raise _error(job, table, "schema" if of.schema_file else "columns" if of.columns else "", str(error)) from None


def _from_file(job: Job, table: str, name: str) -> Record:
    try:
        text = (job.file.parent / name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _error(job, table, "schema", f"the schema file {name} cannot be read: {reason}") from None
    record = Record.parse(text)
    if record.bare:
        raise _error(job, table, "schema", f"the schema file {name} holds no record")
    return record


def _from_registry(job: Job, table: str) -> Record:
    from rowkind.service.job.registry import open_registry  # noqa: PLC0415 -- only such jobs pay for loading a client

    of = job.tables[table]
    record = open_registry(job).latest(f"{of.topic}-value")
    if of.mode != "debezium":
        return record
    if "after" not in record.names or record.type("after").kind != "record":
        raise _error(
            job, table, "mode", f"the registry's schema of topic {of.topic} is no Debezium envelope: it has no `after`"
        )
    row = record.type("after")
    return Record(row.name, row.fields)


def _error(job: Job, table: str, field: str, text: str) -> JobError:
    path = ("tables", table, *([field] if field else []))
    return JobError(str(job.file), [Problem(job.line(*path), ".".join(path), text)])
