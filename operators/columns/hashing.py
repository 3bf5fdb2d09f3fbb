"""The 64-bit key hash, which determines a row's shard and its order in an arrangement.

The hash is XXH64 with seed 0, according to the specification of Yann Collet's xxHash, so shard numbers can be
recomputed with any xxHash library. The hashes of all rows are computed at once, by a library in C or by NumPy. Values
longer than `LONGEST` bytes are first replaced by their 32-byte BLAKE2b digest, because the cost depends on the longest
value in a batch.

State on disk and shard numbers depend on these hashes, so the hash function must never change. A test compares its
results with golden values.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.native import address
from rowkind.operators.columns import library
from rowkind.operators.columns.changes import Indices, Uint64s, binary

LONGEST = 1024
"""The maximum length in bytes of values that are hashed directly. Of longer values, the digest is hashed."""

_CHUNK = 1 << 14
"""The number of rows hashed at a time, small enough for intermediate columns to stay in the processor's cache."""

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LANES = np.array([0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579], dtype=np.uint64)
_STRIPE = 32


def hash64(values: pa.BinaryArray) -> Uint64s:
    """Return the XXH64 hash of each value; null is hashed like an empty value."""
    values = _with_long_values_digested(values)
    compiled = _by_the_library("rk_hash64", values)
    if compiled is not None:
        return compiled
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    data = values.buffers()[2]
    if len(values) == 0 or data is None:
        data = pa.py_buffer(b"")
    result = np.empty(len(values), dtype=np.uint64)
    lengths = np.diff(offsets)
    uniform = len(lengths) == 0 or bool((lengths == lengths[0]).all())
    order = None if uniform else np.argsort(lengths, kind="stable")
    for first in range(0, len(values), _CHUNK):
        rows: Any = slice(first, first + _CHUNK) if order is None else order[first : first + _CHUNK]
        result[rows] = _hash_ascending(data, offsets[:-1][rows], lengths[rows])
    return result


def digest128(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the first 128 bits of each value's SHA-256 digest, as a permanent substitute for the value.

    Nulls are not allowed. Unlike values with equal 64-bit hashes, values with equal digests need not be compared,
    because collisions do not occur in practice. A digest takes about 1 us.
    """
    return binary(hashlib.sha256(value).digest()[:16] for value in values.to_pylist())


def mix(first: Uint64s, second: Uint64s) -> Uint64s:
    """Combine two hashes into one; their order matters. The result must only be used within a batch, never stored."""
    return _avalanche((_rotate(first, 31) * _PRIME_1) ^ (second * _PRIME_2))


def sketch64(values: pa.BinaryArray) -> Uint64s:
    """Return a code for each value, computed from the value's length and 24 of its bytes.

    Equal values have the same code. Values that differ only in bytes that the code does not cover also have the same
    code, so values with the same code must be compared. A code costs a quarter as much as a hash. Codes must only be
    used within a batch, never stored.
    """
    compiled = _by_the_library("rk_sketch64", values)
    if compiled is not None:
        return compiled
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    codes = lengths.astype(np.uint64) * _PRIME_5
    rows = _where(lengths >= 8)
    if rows is None:
        return codes
    words = _at_every_byte(values.buffers()[2], "<u8")
    room = lengths[rows] - 8
    for place in (starts[rows], starts[rows] + room // 2, starts[rows] + room):
        codes[rows] = _round(codes[rows], words[place])
    return codes


def _by_the_library(function: str, values: pa.BinaryArray) -> Uint64s | None:
    """Return what a function of `codes.c` computes for each value, or None if the library was not compiled."""
    kernels = library.kernels()
    if kernels is None:
        return None
    _, ends, data = values.buffers()
    result = np.empty(len(values), np.uint64)
    if len(values):
        getattr(kernels, function)(
            ctypes.c_void_p(data.address if data is not None else None),
            ctypes.c_void_p(ends.address + 4 * values.offset),
            ctypes.c_int64(len(values)),
            address(result),
        )
    return result


def _with_long_values_digested(values: pa.BinaryArray) -> pa.BinaryArray:
    if values.nbytes <= LONGEST or len(values) == 0:
        return values
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    if int(np.diff(offsets).max()) <= LONGEST:
        return values
    return binary(
        hashlib.blake2b(value, digest_size=_STRIPE).digest() if value is not None and len(value) > LONGEST else value
        for value in values.to_pylist()
    )


def _hash_ascending(data: pa.Buffer, starts: Indices, lengths: npt.NDArray[np.int64]) -> Uint64s:
    """Return the XXH64 hashes of spans of `data`. `lengths` must ascend: each round processes a tail of the rows."""
    words, halves, octets = (_at_every_byte(data, kind) for kind in ("<u8", "<u4", "u1"))
    hashes = np.full(len(starts), _PRIME_5, dtype=np.uint64)
    long = int(np.searchsorted(lengths, _STRIPE))
    if long < len(starts):
        lanes = np.repeat(_LANES[:, None], len(starts) - long, axis=1)
        for stripe in range(int(lengths[-1]) // _STRIPE):
            active = int(np.searchsorted(lengths, _STRIPE * (stripe + 1)))
            for lane in range(4):
                word = words[starts[active:] + (_STRIPE * stripe + 8 * lane)]
                lanes[lane, active - long :] = _round(lanes[lane, active - long :], word)
        merged = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
        for lane in range(4):
            merged = (merged ^ _round(np.uint64(0), lanes[lane])) * _PRIME_1 + _PRIME_4
        hashes[long:] = merged
    hashes += lengths.astype(np.uint64)

    position = starts + (lengths & ~(_STRIPE - 1))
    remaining = lengths & (_STRIPE - 1)
    for nth in range(3):
        rows = _where(remaining >= 8 * (nth + 1))
        if rows is not None:
            word = words[position[rows] + 8 * nth]
            hashes[rows] = _rotate(hashes[rows] ^ _round(np.uint64(0), word), 27) * _PRIME_1 + _PRIME_4
    position += remaining & ~7
    remaining = remaining & 7
    rows = _where(remaining >= 4)
    if rows is not None:
        half = halves[position[rows]].astype(np.uint64)
        hashes[rows] = _rotate(hashes[rows] ^ (half * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
    position += remaining & 4
    remaining = remaining & 3
    for nth in range(3):
        rows = _where(remaining > nth)
        if rows is not None:
            octet = octets[position[rows] + nth].astype(np.uint64)
            hashes[rows] = _rotate(hashes[rows] ^ (octet * _PRIME_5), 11) * _PRIME_1
    return _avalanche(hashes)


def _at_every_byte(data: pa.Buffer, kind: str) -> npt.NDArray[Any]:
    """Return an array whose element i is the little-endian number that begins at byte i of `data`."""
    return np.ndarray(max(data.size - np.dtype(kind).itemsize + 1, 0), kind, data, strides=(1,))


def _where(mask: npt.NDArray[np.bool_]) -> Any:
    """Return the cheapest index that selects the rows where the mask is true, or None if there are no such rows."""
    if mask.all():
        return slice(None)
    return np.flatnonzero(mask) if mask.any() else None


def _rotate(values: Uint64s, bits: int) -> Uint64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(accumulator: Any, word: Uint64s) -> Uint64s:
    result: Uint64s = _rotate(accumulator + word * _PRIME_2, 31) * _PRIME_1
    return result


def _avalanche(hashes: Uint64s) -> Uint64s:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    return hashes ^ (hashes >> np.uint64(32))
