"""Decode packed values into Arrow arrays, one column at a time.

The structure of the rows has already been checked. Only values can still be invalid: text that is not UTF-8, a decimal
with too many digits, or a time that is out of range. Such a row gets a flaw, and its value becomes null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from rowkind.avro.buffers import Bools, Ints, Words, primitive, spans, spread
from rowkind.avro.cursor import FRONT, Cursor, Fault
from rowkind.avro.type import Type, TypeKind, null_branch
from rowkind.avro.walk import Items, NamedTypes, each_item, skip, width

_DAY_MS = 86_400_000
_MOST_MS = (1 << 63) // 1000 - 1
BOUNDED_TIMES = {
    "time-millis": (0, _DAY_MS - 1),
    "time-micros": (0, _DAY_MS * 1000 - 1),
    "timestamp-millis": (-_MOST_MS, _MOST_MS),
    "local-timestamp-millis": (-_MOST_MS, _MOST_MS),
}
"""The minimum and the maximum of each type. As in Spark, milliseconds must fit into 64 bits as microseconds."""


def decode(type_: Type, cursor: Cursor, scope: NamedTypes) -> pa.Array:
    """Decode one value in every row into an Arrow array of `type_.arrow`, and move the cursor past it."""
    if type_.optional:
        there = cursor.branch(type_)
        if there.all():
            return decode(type_.required, cursor, scope)
        rows = np.flatnonzero(there)
        part = cursor.select(rows)
        values = decode(type_.required, part, scope)
        cursor.merge(rows, part)
        return spread(values, there)
    if type_.logical == "decimal":
        return _decimal(type_, cursor)
    match type_.kind:
        case "record":
            scope = {**scope, type_.name: type_}
            columns = [decode(field.type, cursor, scope) for field in type_.fields]
            return pa.Array.from_buffers(type_.arrow, len(cursor), [None], children=columns)
        case "array" | "map":
            return _items(type_, cursor, scope)
        case "union" | "reference":
            return _packed(type_, cursor, scope)
        case scalar:
            return _SCALARS[scalar](type_, cursor)


def gather(cursor: Cursor, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return the bytes between two positions of the cursor's source, one element per row."""
    return spans(cursor.source.data[FRONT:], starts - FRONT, ends - FRONT)


def text(values: pa.BinaryArray, cursor: Cursor) -> pa.StringArray:
    """Return the same bytes as strings; rows whose bytes are not UTF-8 get a flaw.

    Arrow checks the whole column at memory speed. Rows are checked one by one only if Arrow finds an error.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        bad = np.array([not _is_text(value) for value in values.to_pylist()], np.bool_)
        cursor.mark(bad, Fault.UTF8)
        return pa.array(values.to_pylist(), pa.binary(), mask=bad).cast(pa.string())


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes(cursor: Cursor) -> pa.BinaryArray:
    lengths = cursor.varint()
    starts = cursor.position
    cursor.advance(lengths)
    return gather(cursor, starts, cursor.position)


def _symbols(type_: Type, cursor: Cursor) -> pa.StringArray:
    index = cursor.index(len(type_.symbols), Fault.SYMBOL)
    return pa.array(type_.symbols, pa.string()).take(pa.array(index))


def _integer(type_: Type, cursor: Cursor) -> pa.Array:
    values = cursor.varint()
    if type_.logical in BOUNDED_TIMES and len(values):
        least, most = BOUNDED_TIMES[type_.logical]
        if values.min() < least or values.max() > most:
            bad = (values < least) | (values > most)
            cursor.mark(bad, Fault.TIME_RANGE)
            values = np.where(bad, 0, values)
            return spread(primitive(type_.arrow, _narrow(type_, values[~bad])), ~bad)
    return primitive(type_.arrow, _narrow(type_, values))


def _narrow(type_: Type, values: Ints) -> Ints | np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return values.astype(np.int32) if type_.kind == "int" else values


def _fixed(type_: Type, cursor: Cursor) -> pa.Array:
    size = width(type_)
    starts = cursor.position
    cursor.move(starts + size)
    if type_.kind == "double":
        return primitive(type_.arrow, cursor.source.words[starts])
    if type_.kind == "float":
        return primitive(type_.arrow, cursor.source.words[starts].astype(np.uint32))
    if not size:
        return pa.array([b""] * len(cursor), type_.arrow)
    values = gather(cursor, starts, cursor.position)
    return pa.Array.from_buffers(type_.arrow, len(values), [None, values.buffers()[2]])


_SCALARS: Mapping[TypeKind, Callable[[Type, Cursor], pa.Array]] = {
    "null": lambda _, cursor: pa.nulls(len(cursor)),
    "boolean": lambda _, cursor: pa.array(cursor.byte() != 0),
    "int": _integer,
    "long": _integer,
    "float": _fixed,
    "double": _fixed,
    "fixed": _fixed,
    "bytes": lambda _, cursor: _bytes(cursor),
    "string": lambda _, cursor: text(_bytes(cursor), cursor),
    "enum": _symbols,
}
"""Functions that decode one value in every row, by the kind of its type."""


def _items(type_: Type, cursor: Cursor, scope: NamedTypes) -> pa.Array:
    """Decode arrays or maps: find the start of every item first, then decode all items as one column."""
    found = Items([np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)])
    each_item(type_, cursor, scope, 0, found)
    owner = np.concatenate(found.rows)
    order = np.argsort(owner, kind="stable")
    owner = owner[order]
    offsets = np.zeros(len(cursor) + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=len(cursor)), out=offsets[1:])

    def column(element: Type, starts: list[Ints]) -> pa.Array:
        inner = Cursor(cursor.source, np.concatenate(starts)[order], cursor.end[owner])
        decoded = decode(element, inner, scope)
        if inner.flaw is not None:
            for flaw in np.unique(inner.flaw[inner.flaw != 0]):
                bad = np.zeros(len(cursor), np.bool_)
                bad[owner[inner.flaw == flaw]] = True
                cursor.mark(bad, Fault(flaw))
        return decoded

    children = [column(type_.element, found.values)]
    if type_.kind == "map":
        # A key with a flaw is null. Arrow forbids null keys, and a null key can crash the process.
        names = column(Type("string"), found.keys).fill_null("")
        entries = type_.arrow.field(0).type
        children = [pa.Array.from_buffers(entries, len(names), [None], children=[names, *children])]
    return pa.Array.from_buffers(type_.arrow, len(cursor), [None, pa.py_buffer(offsets)], children=children)


def _packed(type_: Type, cursor: Cursor, scope: NamedTypes) -> pa.BinaryArray:
    """Return opaque values as their bytes. Unions are null in rows that use the null branch."""
    starts = cursor.position
    if not type_.nullable:
        skip(type_, cursor, scope)
        return gather(cursor, starts, cursor.position)
    there = Cursor(cursor.source, starts, cursor.end).varint() != null_branch(type_)
    skip(type_, cursor, scope)
    return spread(gather(cursor, starts, cursor.position).filter(pa.array(there)), there)


def _decimal(type_: Type, cursor: Cursor) -> pa.Array:
    """Decode big-endian two's complement numbers of any length, reading 64-bit words from their ends."""
    lengths = np.full(len(cursor), type_.size) if type_.kind == "fixed" else cursor.varint()
    starts = cursor.position
    cursor.advance(lengths)
    lengths = cursor.position - starts
    count = 2 if type_.precision <= 38 else 4
    words = np.zeros((len(cursor), count), np.uint64)
    negative = (cursor.source.data[starts] > 127) & (lengths > 0)
    sign = np.where(negative, ~np.uint64(0), np.uint64(0))
    longest = int(lengths.max(initial=0))
    for i in range(count):
        words[:, i] = _word(cursor.source.words, cursor.position, lengths, i, sign) if longest > 8 * i else sign
    if longest > 8 * count:
        for row in np.flatnonzero(lengths > 8 * count).tolist():
            raw = bytes(cursor.source.data[starts[row] : cursor.position[row]])
            number = int.from_bytes(raw, "big", signed=True)
            clipped = max(min(number, 10**type_.precision), -(10**type_.precision))
            words[row] = np.frombuffer(clipped.to_bytes(8 * count, "little", signed=True), "<u8")
    bad = _beyond(words, 10**type_.precision)
    if bad.any():
        cursor.mark(bad, Fault.PRECISION)
        return spread(primitive(type_.arrow, words[~bad]), ~bad)
    return primitive(type_.arrow, words)


def _word(words: Words, ends: Ints, lengths: Ints, i: int, sign: Words) -> Words:
    """Return each number's i-th word from the end, sign-extended."""
    raw = words[ends - 8 * (i + 1)].byteswap()
    own = np.clip(lengths - 8 * i, 0, 8)
    shift = ((8 - np.maximum(own, 1)) * 8).astype(np.uint64)
    value = ((raw << shift).view(np.int64) >> shift.astype(np.int64)).view(np.uint64)
    return np.where(own > 0, value, sign)


def _beyond(words: Words, bound: int) -> Bools:
    """Return a mask of the numbers that are not strictly between -bound and bound.

    Each number is a row of little-endian words.
    """
    return ~(_less(words, bound) & ~_less(words, 1 - bound))


def _less(words: Words, bound: int) -> Bools:
    """Return a mask of the two's complement numbers that are less than `bound`.

    Each number is a row of little-endian words.
    """
    count = words.shape[1]
    limit = np.frombuffer(bound.to_bytes(8 * count, "little", signed=True), "<u8")
    less: Bools = words.view(np.int64)[:, -1] < limit.view(np.int64)[-1]
    equal = words[:, -1] == limit[-1]
    for i in range(count - 2, -1, -1):
        less |= equal & (words[:, i] < limit[i])
        equal &= words[:, i] == limit[i]
    return less
