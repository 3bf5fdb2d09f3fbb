"""Cursors, each of which has a position in every row of a column of packed rows, and the faults that cursors can find.

Nothing here raises on bad data or reads outside the buffer. A row that ends too early, or has bytes that its schema
does not allow, gets a fault, and its position stays at its end. The varint code reads eight bytes at once and closes
the gaps between the 7-bit groups by three shifts (the usual SWAR form of a parallel bit extract).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa

from rowkind.avro.buffers import Bools, Bytes, Ints, Words, as_binary, data_of, offsets_of, words_of
from rowkind.avro.type import Type

FRONT = 32
BACK = 16
DEEPEST = 64
_HIGH = np.uint64(0x8080808080808080)
_U1 = np.uint64(1)
_GAPS = (
    (np.uint64(0x007F007F007F007F), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(4)),
)


class Fault(IntEnum):
    """The reasons why a row cannot be read."""

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
        """The description of the fault, for messages."""
        return _TEXTS[self]


_TEXTS = {
    Fault.NONE: "nothing is wrong",
    Fault.MISSING: "there is no value",
    Fault.TRUNCATED: "the row ends before the value is complete",
    Fault.OVERLONG: "the number has more than 64 bits",
    Fault.INT_RANGE: "the number has more than 32 bits",
    Fault.LENGTH: "the length is negative",
    Fault.BRANCH: "the union has no branch with this number",
    Fault.SYMBOL: "the enum has no symbol with this number",
    Fault.BOOLEAN: "the boolean is neither 0 nor 1",
    Fault.ITEMS: "the number of items is larger than the row can contain",
    Fault.DEPTH: f"the record is nested in itself more than {DEEPEST} levels deep",
    Fault.TRAILING: "bytes are left over after the last field",
    Fault.UTF8: "the text is not valid UTF-8",
    Fault.PRECISION: "the decimal has more digits than the type allows",
    Fault.TIME_RANGE: "the time is out of range",
    Fault.NOT_NULL: "the value is NULL, but the column is NOT NULL",
    Fault.CONVERSION: "the value does not fit the column's type",
}


class PaddedBytes:
    """The bytes of a column of rows, copied once with padding around them, so that whole words can be read anywhere.

    Positions are counted from the beginning of the padded copy.
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
        self.missing: Bools | None = None
        if payloads.null_count:
            self.missing = np.asarray(payloads.is_null().to_numpy(zero_copy_only=False), np.bool_)
            self.ends = np.where(self.missing, self.starts, self.ends)


class Cursor:
    """A position in each row of a source, or in each of some rows, with the row's end and fault.

    A fault means that the structure is broken; the position then stays at the row's end. A flaw means that a value is
    invalid, which only decoding detects; the rest of the row can still be read.
    """

    __slots__ = ("end", "fault", "faulty", "flaw", "position", "source")

    def __init__(self, source: PaddedBytes, position: Ints, end: Ints, fault: Bytes | None = None) -> None:
        self.source = source
        self.position = position
        self.end = end
        self.fault: Bytes = np.zeros(len(position), np.uint8) if fault is None else fault
        self.faulty = fault is not None and bool(fault.any())
        self.flaw: Bytes | None = None

    def __len__(self) -> int:
        return len(self.position)

    def fail(self, rows: Bools, fault: Fault) -> None:
        """Mark the given rows with a fault, unless they have one already, and move their positions to their ends."""
        if rows.any():
            self.fault[rows & (self.fault == 0)] = fault
            self.position = np.where(rows, self.end, self.position)
            self.faulty = True

    def mark(self, rows: Bools, flaw: Fault) -> None:
        """Mark the given rows with a flaw, unless they have one already."""
        if self.flaw is None:
            self.flaw = np.zeros(len(self), np.uint8)
        self.flaw[rows & (self.flaw == 0)] = flaw

    def select(self, rows: Ints) -> Cursor:
        """Return a separate cursor over the given rows."""
        return Cursor(self.source, self.position[rows], self.end[rows], self.fault[rows])

    def merge(self, rows: Ints, part: Cursor) -> None:
        """Copy the positions, faults and flaws of a cursor that `select` returned back to this cursor."""
        self.position[rows] = part.position
        if part.faulty:
            self.fault[rows] = part.fault
            self.faulty = True
        if part.flaw is not None:
            if self.flaw is None:
                self.flaw = np.zeros(len(self), np.uint8)
            self.flaw[rows] = np.where(self.flaw[rows] == 0, part.flaw, self.flaw[rows])

    def good(self) -> Ints:
        """Return the rows without a fault."""
        return np.flatnonzero(self.fault == 0)

    def move(self, position: Ints) -> None:
        """Move to positions a few bytes ahead. Rows that end before their new position get the fault TRUNCATED."""
        self.position = position
        over = position > self.end
        if over.any():
            self.fail(over, Fault.TRUNCATED)

    def advance(self, lengths: Ints) -> None:
        """Skip the given number of bytes in each row. Negative and excessive lengths are faults."""
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
        # Work in place where possible: memory for one more column costs more than computing it.
        value = self.source.words[self.position]
        stop = ~value
        stop &= _HIGH
        below = np.negative(stop)
        below &= stop
        below -= _U1
        length = (np.bitwise_count(below) + np.uint8(1)) >> np.uint8(3)
        below &= ~_HIGH
        value &= below
        for low, shift in _GAPS:
            high = np.bitwise_and(value, ~low, out=below)
            high >>= shift
            value &= low
            value |= high
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

    def branch(self, type_: Type) -> Bools:
        """Read the branch of a nullable type, which is one byte, 0 or 2.

        Return a mask of the rows whose value is not NULL.
        """
        byte = self.byte()
        odd = (byte & ~np.uint8(2)) != 0
        if odd.any():
            self.fail(odd, Fault.BRANCH)
        there: Bools = byte == (2 if type_.null_first else 0)
        if self.faulty:
            there &= self.fault == 0
        return there

    def index(self, bound: int, fault: Fault) -> Ints:
        """Read a number, which must be at least 0 and less than `bound`. Rows with any other number get the fault."""
        index = self.varint()
        if len(index) and (index.min() < 0 or index.max() >= bound):
            self.fail((index < 0) | (index >= bound), fault)
        return index


def _zigzag(value: Words) -> Ints:
    sign = np.negative(value & _U1)
    value >>= _U1
    value ^= sign
    return value.view(np.int64)
