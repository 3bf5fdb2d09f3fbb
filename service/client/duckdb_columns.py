"""Arrow columns in a form that DuckDB can store, for each type that a row can have.

| type in the job | type in DuckDB |
|---|---|
| BOOLEAN, INT, BIGINT, FLOAT, DOUBLE | the same |
| STRING, enums, UUIDs as text | VARCHAR |
| BINARY, `fixed` | BLOB |
| DECIMAL | the same; VARCHAR if it has more than 38 digits |
| DATE, TIME | the same |
| TIMESTAMP_NTZ | TIMESTAMP; TIMESTAMP_NS for nanoseconds |
| TIMESTAMP | TIMESTAMP WITH TIME ZONE; TIMESTAMPTZ_NS for nanoseconds |
| ARRAY, MAP, STRUCT | T[], MAP, STRUCT; VARCHAR for a STRUCT without fields |
| UNION, RECURSIVE, DURATION | BLOB with the value in Avro |
| VOID | VARCHAR |

A date or timestamp that DuckDB cannot represent becomes 'infinity' or '-infinity', which keeps its order. If a map has
a key twice, its last entry counts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import as_binary, offsets_of, validity
from rowkind.avro.timestamp_text import FIRST_DATE, FIRST_MOMENT, LAST_DATE, LAST_MOMENT
from rowkind.avro.type import Type

_MOST_DIGITS = 38
_FIRST_NANOS, _LAST_NANOS = -(2**63) + 2, 2**63 - 2
"""The range of DuckDB's timestamps in nanoseconds."""


def distinct_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names, with underscores appended to those that DuckDB, which ignores case, would confuse."""
    used = {name.lower() for name in taken}
    found = []
    for name in names:
        while name.lower() in used:
            name += "_"  # noqa: PLW2901 -- the name grows until it is distinct
        used.add(name.lower())
        found.append(name)
    return found


def for_duckdb(type_: Type, column: pa.Array) -> pa.Array:
    """Return a column of `type_.arrow` in a form that DuckDB can store."""
    if type_.opaque:
        return column
    if type_.logical is not None:
        return _logical(type_, column)
    match type_.kind:
        case "null":
            return pa.nulls(len(column), pa.string())
        case "fixed":
            return as_binary(column)
        case "record":
            return _record(type_, column)
        case "array":
            return _array(type_, column)
        case "map":
            return _map(type_, column)
        case _:
            return column


def _logical(type_: Type, column: pa.Array) -> pa.Array:
    if type_.logical == "decimal":
        return column if type_.precision <= _MOST_DIGITS else _digits(column)
    if type_.logical == "date":
        return _within(column, np.int32, FIRST_DATE, LAST_DATE)
    if pa.types.is_timestamp(column.type):
        return _moments(column)
    return as_binary(column) if pa.types.is_fixed_size_binary(column.type) else column


def _digits(column: pa.Array) -> pa.StringArray:
    return pa.array([None if each is None else f"{each:f}" for each in column.to_pylist()], pa.string())


def _moments(column: pa.Array) -> pa.Array:
    if column.type.unit == "ns":
        return _within(column, np.int64, _FIRST_NANOS, _LAST_NANOS)
    micros = column.cast(pa.timestamp("us", column.type.tz))
    return _within(micros, np.int64, FIRST_MOMENT, LAST_MOMENT)


def _within(column: pa.Array, number: type[np.signedinteger], first: int, last: int) -> pa.Array:
    """Replace values before `first` and after `last` by DuckDB's infinities: the largest number and its negation."""
    there, infinity = validity(column), np.iinfo(number).max
    plain = column.cast(pa.from_numpy_dtype(number))
    values = (plain.fill_null(0) if plain.null_count else plain).to_numpy(zero_copy_only=False)
    if not len(values) or (values.min() >= first and values.max() <= last):
        return column
    values = np.where(values < first, -infinity, np.where(values > last, infinity, values))
    return pa.array(values, plain.type, mask=~there).cast(column.type)


def _record(type_: Type, column: pa.Array) -> pa.Array:
    if not type_.fields:
        return pc.if_else(column.is_valid(), "{}", pa.scalar(None, pa.string()))
    parts = [for_duckdb(field.type, column.field(number)) for number, field in enumerate(type_.fields)]
    names = distinct_names(field.name for field in type_.fields)
    struct = pa.struct([pa.field(name, part.type) for name, part in zip(names, parts, strict=True)])
    return pa.Array.from_buffers(struct, len(column), [_bitmap(column)], children=parts)


def _array(type_: Type, column: pa.Array) -> pa.Array:
    offsets, values = _unfolded(column, column.values)
    values = for_duckdb(type_.element, values)
    buffers = [_bitmap(column), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(values.type), len(column), buffers, children=[values])


def _map(type_: Type, column: pa.Array) -> pa.Array:
    offsets, keys = _unfolded(column, column.keys)
    _, items = _unfolded(column, column.items)
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    last = pa.table({"row": rows, "key": keys, "at": np.arange(len(keys))}).group_by(["row", "key"]).aggregate(
        [("at", "max")]
    )  # fmt: skip
    if last.num_rows < len(keys):
        at = np.sort(last["at_max"].to_numpy())
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[at], minlength=len(column)))])
        keys, items = keys.take(pa.array(at)), items.take(pa.array(at))
    items = for_duckdb(type_.element, items)
    entries = pa.struct([pa.field("key", keys.type, nullable=False), pa.field("value", items.type)])
    pairs = pa.Array.from_buffers(entries, len(keys), [None], children=[keys, items])
    buffers = [_bitmap(column), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(pa.map_(keys.type, items.type), len(column), buffers, children=[pairs])


def _unfolded(column: pa.Array, values: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return the offsets of an array or map column, from 0, and the values to which they refer."""
    offsets = offsets_of(column).astype(np.int64)
    return offsets - offsets[0], values[int(offsets[0]) : int(offsets[-1])]


def _bitmap(column: pa.Array) -> pa.Buffer | None:
    there = validity(column)
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
