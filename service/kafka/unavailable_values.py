"""Find columns in which Debezium has written its placeholder, because it does not know the value.

PostgreSQL does not log a large value (TOAST) that an update left unchanged, unless the table has REPLICA IDENTITY FULL.
Debezium then writes the text of `unavailable.value.placeholder`: as text or bytes, as the only element of an array, as
an array of numbers with the bytes of the text, or as the key and value of a map. The placeholder is not a value of the
column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.python_values import to_python
from rowkind.avro.schema import Record
from rowkind.operators.columns.grouping import to_mask


def unavailable(record: Record, payloads: pa.BinaryArray, placeholder: str) -> Mapping[int, list[str]]:
    """Return the columns that contain the placeholder, by row. A null or empty payload does not count as a row."""
    inner = [each for field in record.fields for each in field.type.walk() if each.kind == "array"]
    # Placeholders are rare: a search for their bytes excludes nearly all rows before decoding.
    wanted = [placeholder.encode()]
    wanted += [_packed_numbers(placeholder)] if any(each.element.kind in ("int", "long") for each in inner) else []
    hits = np.zeros(len(payloads), np.bool_)
    for pattern in wanted:
        hits |= to_mask(pc.match_substring(payloads, pattern).fill_null(False))
    at = np.flatnonzero(hits)
    if not len(at):
        return {}
    found: dict[int, list[str]] = {}
    decoded, forms = codec.read(record, payloads.take(pa.array(at))), _forms(placeholder)
    for name in record.names:
        for row, value in zip(at.tolist(), to_python(decoded.column(name)), strict=True):
            if value in forms:
                found.setdefault(row, []).append(name)
    return found


def refusal(columns: list[str], placeholder: str) -> str:
    """Return the error message for a row with the placeholder in the given columns."""
    several = len(columns) > 1
    return (
        f"{'columns' if several else 'column'} {', '.join(columns)}: Debezium does not know the unchanged "
        f"{'values' if several else 'value'} of an updated row, and sent {placeholder!r}: set REPLICA IDENTITY FULL "
        f"for the table in PostgreSQL, and send the row again"
    )


def _forms(placeholder: str) -> list[Any]:
    """Return the placeholder as a value of each type in which it can appear."""
    data = placeholder.encode()
    by_name = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    return [placeholder, data, [placeholder], [data], list(data), [(placeholder, placeholder)], by_name]


def _packed_numbers(placeholder: str) -> bytes:
    """Return the bytes of the text as Avro encodes them in an array of numbers."""
    packed = bytearray()
    for byte in placeholder.encode():
        number = 2 * byte
        packed += bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
    return bytes(packed)
