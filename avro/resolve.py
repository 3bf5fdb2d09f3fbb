"""Schema resolution: whole batches are converted from the writer's schema to the table's columns as they enter a job.

Fields that have the same bytes under both schemas are copied without decoding; adjacent fields are copied as one span.
All other fields are decoded, converted and encoded again. If nothing differs, the rows pass through unchanged.

The result is valid: text is UTF-8, and decimals have no more digits than their type. Decimals, arrays and maps are
packed in the one form that `encode` uses, so equal values have equal bytes, even if different writers wrote them. Only
the structure of general unions is checked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from rowkind.avro.codec import Decoded, read
from rowkind.avro.convert import check, match_fields
from rowkind.avro.decode import BOUNDED_TIMES
from rowkind.avro.defaults import default_bytes
from rowkind.avro.errors import ResolutionError
from rowkind.avro.schema import Record
from rowkind.avro.type import Type

SchemaText = str | bytes
"""The source of a column: a field of the writer, or the column's default, packed."""


def resolve(writer: Record, reader: Record, payloads: pa.BinaryArray) -> tuple[pa.BinaryArray, Decoded]:
    """Convert rows of `writer` to rows of `reader`.

    Also return the decoded rows, whose `bad` and `reason` describe the bad rows. Compared to the writer, `reader` may
    have fewer columns, more columns (with defaults), wider columns, or another column order. Bad rows have empty bytes.
    Raises ResolutionError, naming the column, if the schemas are incompatible.
    """
    sources = plan(writer, reader)
    writer = _as_read(writer, reader, sources)
    decoded = read(writer, payloads)
    inputs: list[str | bytes | pa.Array] = []
    for field, source in zip(reader.fields, sources, strict=True):
        if isinstance(source, bytes):
            inputs.append(source)
            continue
        type_ = writer.type(source)
        if _can_be_invalid(type_):
            decoded.column(source)
        loose = type_.same_value(field.type) and _can_be_loose(type_) and not decoded.is_canonical(source)
        inputs.append(decoded.column(source) if loose else source)
    return decoded.assemble(reader, inputs), decoded


@lru_cache(maxsize=256)
def plan(writer: Record, reader: Record) -> tuple[SchemaText, ...]:
    """Return the source of each column of `reader`. Raises ResolutionError if the schemas are incompatible."""
    if writer.bare and len(reader.fields) == 1:
        origin, wanted = writer.fields[0], reader.fields[0]
        check(origin.type, wanted.type, wanted.name)
        return (origin.name,)
    if writer.bare:
        raise ResolutionError(
            reader.names[0] if reader.names else "",
            f"the writer's schema is a plain {writer.fields[0].type.sql}, not a record "
            f"with the columns {', '.join(reader.names) or '(none)'}",
        )
    sources: list[SchemaText] = []
    problems: list[ResolutionError] = []
    for field in reader.fields:
        try:
            ((_, found),) = match_fields(writer.fields, (field,))
            if found is not None:
                check(found.type, field.type, field.name)
                sources.append(found.name)
            elif (default := default_bytes(field)) is not None:
                sources.append(default)
        except ResolutionError as error:
            problems.append(error)
    if problems:
        raise ResolutionError(problems[0].field, "; ".join(map(str, problems)))
    return tuple(sources)


@lru_cache(maxsize=256)
def _as_read(writer: Record, reader: Record, sources: tuple[SchemaText, ...]) -> Record:
    """Return the writer's record, with bare numbers in place of dates and times that the table reads as numbers.

    Bare numbers are never out of range.
    """
    wanted = {source: field.type for field, source in zip(reader.fields, sources, strict=True)}
    fields = (replace(field, type=_bare(field.type, wanted.get(field.name))) for field in writer.fields)
    return replace(writer, fields=tuple(fields))


def _bare(source: Type, wanted: Type | None) -> Type:
    if wanted is None:
        return source
    match source.kind, wanted.kind:
        case "int" | "long", "int" | "long":
            return source if wanted.logical is not None else replace(source, logical=None)
        case ("array", "array") | ("map", "map"):
            return replace(source, items=_bare(source.element, wanted.element))
        case "record", "record":
            inner = {
                origin.name: field.type
                for field, origin in match_fields(source.fields, wanted.fields)
                if origin is not None
            }
            fields = tuple(replace(each, type=_bare(each.type, inner.get(each.name))) for each in source.fields)
            return replace(source, fields=fields)
    return source


@lru_cache(maxsize=1024)
def _can_be_invalid(type_: Type) -> bool:
    return any(
        inner.kind in ("string", "map") or inner.logical == "decimal" or inner.logical in BOUNDED_TIMES
        for inner in type_.walk()
    )


@lru_cache(maxsize=1024)
def _can_be_loose(type_: Type) -> bool:
    return any(
        inner.kind in ("array", "map") or (inner.logical == "decimal" and inner.kind == "bytes")
        for inner in type_.walk()
    )
