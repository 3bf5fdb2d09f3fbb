"""Values that Debezium did not get from the database, for which it sends a placeholder.

PostgreSQL does not log a large value (TOAST) that an update leaves as it was, unless the table's replica identity is
FULL. In its place Debezium sends a text, or its bytes. It must never be taken for the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.python_values import to_python
from rowkind.avro.schema import Record, Type

PLACEHOLDER = "__debezium_unavailable_value"


def unavailable(record: Record, payloads: pa.BinaryArray) -> dict[int, str]:
    """Why rows have no value in some columns, by their place."""
    suspects = np.flatnonzero(pc.match_substring(payloads, PLACEHOLDER).fill_null(False).to_numpy(zero_copy_only=False))
    if not len(suspects):
        return {}
    decoded = codec.read(record, payloads.take(pa.array(suspects)))
    found: dict[int, list[str]] = {}
    for field in record.fields:
        if not any(_may_be(inner) for inner in field.type.walk()):
            continue
        for row, value in zip(suspects.tolist(), to_python(decoded.column(field.name)), strict=True):
            if _is(value):
                found.setdefault(row, []).append(field.name)
    return {row: _reason(names) for row, names in found.items()}


def _may_be(type_: Type) -> bool:
    return type_.logical is None and type_.kind in ("string", "bytes")


def _is(value: object) -> bool:
    match value:
        case str():
            return value == PLACEHOLDER
        case bytes():
            return value == PLACEHOLDER.encode()
        case list() | tuple():
            return any(map(_is, value))
        case dict():
            return any(map(_is, value.values()))
    return False


def _reason(names: Sequence[str]) -> str:
    return (
        f"the database did not log the value of {', '.join(names)}, which the update left as it was: have it do so, by "
        f"ALTER TABLE … REPLICA IDENTITY FULL, or do not read {'these columns' if len(names) > 1 else 'this column'}"
    )
