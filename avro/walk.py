"""Finding the way through packed rows, all rows at once.

A `Cursor` stands at one position in every row. Each step reads or skips one value in all rows by a few NumPy
operations, so a row of five fields costs some hundred nanoseconds however many rows there are. Values inside arrays,
maps and unions are walked the same way, over the rows that have a next one.

Nothing here raises on bad data or reads outside of the buffer: a row that ends too early, or holds what its schema
does not allow, gets a fault and stays at its end. The varint code reads eight bytes at once and closes the gaps of the
7-bit groups by three shifts (the usual SWAR form of a parallel bit extract).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from avro.buffers import Bytes, Ints, Mask, Words, as_binary, data_of, offsets_of, words_of
from avro.type import Type

Scope = Mapping[str, Type]
"""The records that a type stands in, by name: what a reference inside it means."""

FRONT = 32
BACK = 16
_MOST_EMPTY_ITEMS = 1 << 20
_DEEPEST = 64
_HIGH = np.uint64(0x8080808080808080)
_U1, _U2, _U4 = np.uint64(1), np.uint64(2), np.uint64(4)


class Fault(IntEnum):
    """Why a row cannot be read."""

    NONE = 0
    MISSING = 1
    TRUNCATED = 2
    OVERLONG = 3
    INT_RANGE = 4
    LENGTH = 5
    BRANCH = 6
    SYMBOL = 7
    BOOLEAN = 8
    ITEMS = 9
    DEPTH = 10
    TRAILING = 11
    UTF8 = 12
    PRECISION = 13
    TIME_RANGE = 14
    NOT_NULL = 15
    CONVERSION = 16

    @property
    def text(self) -> str:
        """The fault in words."""
        return _TEXTS[self]


_TEXTS = {
    Fault.NONE: "nothing is wrong",
    Fault.MISSING: "there is no value",
    Fault.TRUNCATED: "the row ends inside it",
    Fault.OVERLONG: "its number takes more than 64 bits",
    Fault.INT_RANGE: "its number takes more than 32 bits",
    Fault.LENGTH: "its length is negative",
    Fault.BRANCH: "its union has no such branch",
    Fault.SYMBOL: "its enum has no such symbol",
    Fault.BOOLEAN: "its boolean is neither 0 nor 1",
    Fault.ITEMS: "it announces more items than the row can hold",
    Fault.DEPTH: f"it contains itself more than {_DEEPEST} levels deep",
    Fault.TRAILING: "bytes are left over behind the last field",
    Fault.UTF8: "its text is not valid UTF-8",
    Fault.PRECISION: "its decimal has more digits than the type allows",
    Fault.TIME_RANGE: "its time is out of range",
    Fault.NOT_NULL: "it is NULL in a column that is NOT NULL",
    Fault.CONVERSION: "its value does not fit the column's type",
}


class Source:
    """The bytes of a column of rows, copied once with room around them, so that whole words can be read anywhere.

    Positions count from the beginning of the padded copy.
    """

    def __init__(self, payloads: pa.BinaryArray) -> None:
        self.payloads = payloads = as_binary(payloads)
        offsets = offsets_of(payloads).astype(np.int64)
        if len(offsets) <= len(payloads):
            offsets = np.zeros(len(payloads) + 1, np.int64)
        low, high = int(offsets[0]), int(offsets[-1])
        self.data: Bytes = np.zeros(FRONT + (high - low) + BACK, np.uint8)
        self.data[FRONT : FRONT + high - low] = data_of(payloads)[low:high]
        self.words: Words = words_of(self.data)
        self.starts: Ints = offsets[:-1] + (FRONT - low)
        self.ends: Ints = offsets[1:] + (FRONT - low)
        self.missing: Mask | None = None
        if payloads.null_count:
            self.missing = np.asarray(payloads.is_null().to_numpy(zero_copy_only=False), np.bool_)
            self.ends = np.where(self.missing, self.starts, self.ends)


class Cursor:
    """A position in each of some rows of a source, each with its end and its fault.

    A fault is a broken structure: the row stays at its end. A flaw, found while decoding, is a value that is not valid
    in a row that can be read on.
    """

    __slots__ = ("end", "fault", "faulty", "flaw", "position", "source")

    def __init__(self, source: Source, position: Ints, end: Ints, fault: Bytes | None = None) -> None:
        self.source = source
        self.position = position
        self.end = end
        self.fault: Bytes = np.zeros(len(position), np.uint8) if fault is None else fault
        self.faulty = fault is not None and bool(fault.any())
        self.flaw: Bytes | None = None

    def __len__(self) -> int:
        return len(self.position)

    def fail(self, rows: Mask, fault: Fault) -> None:
        """Give these rows a fault, unless they have one, and send them to their end."""
        if rows.any():
            self.fault[rows & (self.fault == 0)] = fault
            self.position = np.where(rows, self.end, self.position)
            self.faulty = True

    def mark(self, rows: Mask, flaw: Fault) -> None:
        """Give these rows a flaw, unless they have one."""
        if self.flaw is None:
            self.flaw = np.zeros(len(self), np.uint8)
        self.flaw[rows & (self.flaw == 0)] = flaw

    def select(self, rows: Ints) -> Cursor:
        """A cursor of its own over these rows."""
        return Cursor(self.source, self.position[rows], self.end[rows], self.fault[rows])

    def merge(self, rows: Ints, part: Cursor) -> None:
        """Take over where a selected cursor has got to."""
        self.position[rows] = part.position
        if part.faulty:
            self.fault[rows] = part.fault
            self.faulty = True
        if part.flaw is not None:
            if self.flaw is None:
                self.flaw = np.zeros(len(self), np.uint8)
            self.flaw[rows] = np.where(self.flaw[rows] == 0, part.flaw, self.flaw[rows])

    def good(self) -> Ints:
        """The rows without a fault."""
        return np.flatnonzero(self.fault == 0)

    def move(self, position: Ints) -> None:
        """Go on to a position that lies a few bytes ahead; a row that ends before it is truncated."""
        self.position = position
        over = position > self.end
        if over.any():
            self.fail(over, Fault.TRUNCATED)

    def advance(self, lengths: Ints) -> None:
        """Skip this many bytes, which may be any numbers."""
        short = lengths > self.end - self.position
        negative = lengths < 0
        if short.any() or negative.any():
            self.fail(negative, Fault.LENGTH)
            self.fail(short, Fault.TRUNCATED)
            lengths = np.where(negative | short, 0, lengths)
        self.position = self.position + lengths

    def byte(self) -> Bytes:
        """Read one byte."""
        found = self.source.data[self.position]
        self.move(self.position + 1)
        return found

    def varint(self) -> Ints:
        """Read one zigzag-coded number of up to 64 bits."""
        first = self.source.data[self.position]
        if len(first) and first.max() < 128:
            self.move(self.position + 1)
            return _zigzag(first.astype(np.uint64))
        word = self.source.words[self.position]
        stop = ~word & _HIGH
        below = (stop & (np.uint64(0) - stop)) - _U1
        length = (np.bitwise_count(below) + np.uint8(1)) >> np.uint8(3)
        value = word & below & ~_HIGH
        value = (value & np.uint64(0x007F007F007F007F)) | ((value & np.uint64(0x7F007F007F007F00)) >> _U1)
        value = (value & np.uint64(0x00003FFF00003FFF)) | ((value & np.uint64(0x3FFF00003FFF0000)) >> _U2)
        value = (value & np.uint64(0x000000000FFFFFFF)) | ((value & np.uint64(0x0FFFFFFF00000000)) >> _U4)
        position = self.position + length
        long = np.flatnonzero(stop == 0)
        overlong = None
        if len(long):
            ninth = self.source.data[self.position[long] + 8].astype(np.uint64)
            tenth = np.where(ninth > 127, self.source.data[self.position[long] + 9], 0).astype(np.uint64)
            value[long] |= ((ninth & np.uint64(127)) << np.uint64(56)) | (tenth << np.uint64(63))
            position[long] += 1 + (ninth > 127)
            overlong = long[tenth > 1]
        self.move(position)
        if overlong is not None and len(overlong):
            rows = np.zeros(len(self), np.bool_)
            rows[overlong] = True
            self.fail(rows, Fault.OVERLONG)
        return _zigzag(value)

    def branch(self, type_: Type) -> Mask:
        """Read the branch of a nullable type: where the value is there. It is one byte, 0 or 2, and nothing else."""
        byte = self.byte()
        odd = (byte & ~np.uint8(2)) != 0
        if odd.any():
            self.fail(odd, Fault.BRANCH)
        there: Mask = byte == (2 if type_.null_first else 0)
        if self.faulty:
            there &= self.fault == 0
        return there

    def index(self, bound: int, fault: Fault) -> Ints:
        """Read a number from 0 to below `bound`; rows with another one get the fault."""
        index = self.varint()
        if len(index) and (index.min() < 0 or index.max() >= bound):
            self.fail((index < 0) | (index >= bound), fault)
        return index


def _zigzag(value: Words) -> Ints:
    return ((value >> _U1) ^ (np.uint64(0) - (value & _U1))).view(np.int64)


def skip(type_: Type, cursor: Cursor, scope: Scope, depth: int = 0) -> None:
    """Move every row's cursor behind one value of this type, and check its structure on the way."""
    if not len(cursor):
        return
    if type_.optional:
        there = cursor.branch(type_)
        if there.all():
            skip(type_.required, cursor, scope, depth)
        else:
            rows = np.flatnonzero(there)
            part = cursor.select(rows)
            skip(type_.required, part, scope, depth)
            cursor.merge(rows, part)
        return
    match type_.kind:
        case "null":
            pass
        case "boolean":
            cursor.fail(cursor.byte() > 1, Fault.BOOLEAN)
        case "int":
            number = cursor.varint()
            if number.min() < -(1 << 31) or number.max() >= 1 << 31:
                cursor.fail((number < -(1 << 31)) | (number >= 1 << 31), Fault.INT_RANGE)
        case "long":
            cursor.varint()
        case "float" | "double" | "fixed":
            cursor.move(cursor.position + width(type_))
        case "bytes" | "string":
            cursor.advance(cursor.varint())
        case "enum":
            cursor.index(len(type_.symbols), Fault.SYMBOL)
        case "record":
            scope = {**scope, type_.name: type_}
            for field in type_.fields:
                skip(field.type, cursor, scope, depth)
        case "array":
            each_item(type_, cursor, lambda part, _: skip(type_.element, part, scope, depth))
        case "map":

            def entry(part: Cursor, _: Ints) -> None:
                part.advance(part.varint())
                skip(type_.element, part, scope, depth)

            each_item(type_, cursor, entry)
        case "union":
            index = cursor.index(len(type_.branches), Fault.BRANCH)
            for i, branch in enumerate(type_.branches):
                rows = np.flatnonzero((index == i) & (cursor.fault == 0))
                part = cursor.select(rows)
                skip(branch, part, scope, depth)
                cursor.merge(rows, part)
        case "reference":
            if depth == _DEEPEST:
                cursor.fail(np.ones(len(cursor), np.bool_), Fault.DEPTH)
            else:
                skip(scope[type_.name], cursor, scope, depth + 1)


def width(type_: Type) -> int:
    """The number of bytes of a type whose values all take the same."""
    return {"float": 4, "double": 8}.get(type_.kind, type_.size)


def least_bytes(type_: Type) -> int:
    """The least number of bytes that a value takes; 0 only where values may take none at all."""
    if type_.optional:
        return 1
    match type_.kind:
        case "null":
            return 0
        case "float" | "double" | "fixed":
            return width(type_)
        case "record":
            return sum(least_bytes(field.type) for field in type_.fields)
        case _:
            return 1


def each_item(type_: Type, cursor: Cursor, step: Callable[[Cursor, Ints], None]) -> None:
    """Walk the blocks of an array or map: `step` gets, again and again, the rows that have a next item.

    The byte size that may stand before a block is read and not believed.
    """
    least = (1 if type_.kind == "map" else 0) + least_bytes(type_.element)
    cursor.position = cursor.position.copy()
    rows = cursor.good()
    left: npt.NDArray[np.int64] = np.zeros(len(rows), np.int64)
    while len(rows):
        fresh = np.flatnonzero(left == 0)
        if len(fresh):
            head = cursor.select(rows[fresh])
            left[fresh] = _block_count(head, least)
            cursor.merge(rows[fresh], head)
            going = np.flatnonzero(left)
            if len(going) < len(rows):
                rows, left = rows[going], left[going]
                continue
        part = cursor.select(rows)
        step(part, rows)
        cursor.merge(rows, part)
        left -= 1
        if part.faulty:
            good = part.good()
            rows, left = rows[good], left[good]


def _block_count(head: Cursor, least: int) -> Ints:
    """Read the header of a block in every row: the number of items, 0 at the end and for rows with a fault."""
    count = head.varint()
    sized = np.flatnonzero((count < 0) & (head.fault == 0))
    if len(sized):
        part = head.select(sized)
        part.varint()
        head.merge(sized, part)
        count[sized] = -count[sized]
    most = (head.end - head.position) // least if least else np.int64(_MOST_EMPTY_ITEMS)
    head.fail((count > most) | (count < 0), Fault.ITEMS)
    return np.where(head.fault == 0, count, 0)
