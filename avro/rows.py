"""A builder of packed rows from pieces: numbers, and bytes that are stored elsewhere.

A row is a sequence of pieces. Neighbouring numbers and lengths are written into a scratch buffer, each as a word of
eight bytes, with spare room after every row. Each word overwrites the surplus bytes of the previous word. All other
pieces (text, fields of another payload) stay where they are. At the end, one gather over the scratch buffer and the
other buffers concatenates the pieces of all rows. Every n-th offset of the result then bounds a row of n pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.avro.buffers import Bools, Ints, Words, binary_from, data_of, offsets_of, words_of

_CONTINUED = np.array([(0x8080808080808080 & ((1 << (8 * (length - 1))) - 1)) for length in range(1, 9)], np.uint64)
_U1, _U2, _U4 = np.uint64(1), np.uint64(2), np.uint64(4)


@dataclass(frozen=True, slots=True)
class _Word:
    """Bytes to write in every row: the low `lengths` bytes of `words`; `most` is the maximum length."""

    words: Words | np.uint64
    lengths: Ints | int
    most: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Element `first + step * row` of `pool` in every row."""

    pool: pa.BinaryArray
    first: int
    step: int


class RowBuilder:
    """A builder of a fixed number of rows, to which pieces are appended in order."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._parts: list[_Word | _Piece] = []

    def constant(self, value: bytes) -> None:
        """Append the same bytes to every row."""
        for at in range(0, len(value), 8):
            part = value[at : at + 8]
            self._parts.append(_Word(np.uint64(int.from_bytes(part, "little")), len(part), len(part)))

    def words(self, words: Words, lengths: Ints | int, most: int) -> None:
        """Append the low `lengths` bytes of each word, little-endian; no length exceeds `most`, which is at most 8."""
        self._parts.append(_Word(words, lengths, most))

    def varint(self, values: Ints, there: Bools | None = None) -> None:
        """Append a zigzag-coded number to the rows where `there` is true, or to all rows if `there` is None."""
        coded = ((values << 1) ^ (values >> 63)).view(np.uint64)
        if there is not None:
            coded = np.where(there, coded, np.uint64(0))
        greatest = int(coded.max(initial=np.uint64(0)))
        if greatest < 128:
            self._parts.append(_Word(coded, 1 if there is None else there.astype(np.int64), 1))
            return
        lengths = np.ones(self.rows, np.int64)
        most = 1
        while greatest >= 1 << (7 * most) and most < 10:
            lengths += coded >= np.uint64(1 << (7 * most))
            most += 1
        low = np.minimum(lengths, 8)
        body = _spread(coded) | _CONTINUED[low - 1]
        if most > 8:
            body = np.where(lengths > 8, body | np.uint64(1 << 63), body)
            tail = ((coded >> np.uint64(56)) & np.uint64(127)) | np.where(lengths > 9, np.uint64(0x180), np.uint64(0))
        if there is not None:
            low = np.where(there, low, 0)
            lengths = np.where(there, lengths, 0)
        self._parts.append(_Word(body, low, min(most, 8)))
        if most > 8:
            self._parts.append(_Word(tail, lengths - low, most - 8))

    def bytes(self, pool: pa.BinaryArray, first: int = 0, step: int = 1) -> None:
        """Append element `first + step * row` of `pool`, unchanged."""
        self._parts.append(_Piece(pool, first, step))

    def finish(self) -> pa.BinaryArray:
        """Return the finished rows."""
        if not self._parts or not self.rows:
            return binary_from(np.zeros(self.rows + 1, np.int32), b"")
        pieces = self._write_words()
        pools: list[pa.BinaryArray] = []
        base: dict[int, int] = {}
        elements = 0
        for piece in pieces:
            if id(piece.pool) not in base:
                base[id(piece.pool)] = elements
                pools.append(piece.pool)
                elements += len(piece.pool)
        indices = np.empty((self.rows, len(pieces)), np.int64)
        rows = np.arange(self.rows, dtype=np.int64)
        for i, piece in enumerate(pieces):
            np.multiply(rows, piece.step, out=indices[:, i])
            indices[:, i] += base[id(piece.pool)] + piece.first
        pool = pools[0] if len(pools) == 1 else pa.concat_arrays(pools)
        taken = pool.take(pa.array(indices.ravel()))
        return binary_from(offsets_of(taken)[:: len(pieces)], data_of(taken))

    def _write_words(self) -> list[_Piece]:
        """Write all words into one scratch buffer, and return the pieces; each sequence of words is one piece."""
        stride = sum(part.most for part in self._parts if isinstance(part, _Word)) + 8
        data: npt.NDArray[np.uint8] = np.empty(self.rows * stride + 8, np.uint8)
        view = words_of(data)
        position = np.arange(self.rows, dtype=np.int64) * stride
        marks = [position]
        runs: list[int] = []
        pieces: list[_Piece | None] = []
        for part in self._parts:
            if isinstance(part, _Piece):
                if pieces and pieces[-1] is None:
                    marks.append(position)
                pieces.append(part)
                continue
            if not pieces or pieces[-1] is not None:
                runs.append(len(pieces))
                pieces.append(None)
            view[position] = part.words
            position = position + part.lengths
        if pieces[-1] is None:
            marks.append(position)
        if not runs:
            return [piece for piece in pieces if piece is not None]
        offsets = np.empty(self.rows * len(marks) + 1, np.int32)
        for i, mark in enumerate(marks):
            offsets[i : -1 : len(marks)] = mark
        offsets[-1] = self.rows * stride
        scratch = binary_from(offsets, data)
        for run, at in enumerate(runs):
            pieces[at] = _Piece(scratch, run, len(marks))
        return [piece for piece in pieces if piece is not None]


def _spread(coded: Words) -> Words:
    """Spread the low 56 bits of each word into groups of seven bits, one group per byte."""
    value = coded & np.uint64((1 << 56) - 1)
    value = (value & np.uint64(0x000000000FFFFFFF)) | ((value & np.uint64(0x00FFFFFFF0000000)) << _U4)
    value = (value & np.uint64(0x00003FFF00003FFF)) | ((value & np.uint64(0x0FFFC0000FFFC000)) << _U2)
    return (value & np.uint64(0x007F007F007F007F)) | ((value & np.uint64(0x3F803F803F803F80)) << _U1)
