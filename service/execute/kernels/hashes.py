"""Kernels for Spark's hash functions, 32-bit Murmur3 and 64-bit xxHash, over whole columns.

Each kernel continues from the hash of the preceding columns. Bytes are processed word by word. Step n processes the
n-th word of all rows that have at least n words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.service.execute.kernels.kernel import Kernel, declared, whole

MACROS = ()
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _rotated(value: Any, bits: int) -> Any:
    width = 8 * value.dtype.itemsize
    return (value << value.dtype.type(bits)) | (value >> value.dtype.type(width - bits))


def _murmur_word(made: Any, word: Any) -> Any:
    mixed = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(made ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_end(made: Any, length: Any) -> Any:
    made = made ^ np.asarray(length).astype(np.uint32)
    made = (made ^ (made >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    made = (made ^ (made >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (made ^ (made >> np.uint32(16))).view(np.int32)


def _murmur_int(value: Any, made: Any) -> Any:
    return _murmur_end(_murmur_word(made.view(np.uint32), value.view(np.uint32)), 4)


def _murmur_long(value: Any, made: Any) -> Any:
    words = np.ascontiguousarray(value).view(np.uint32).reshape(-1, 2)
    return _murmur_end(_murmur_word(_murmur_word(made.view(np.uint32), words[:, 0]), words[:, 1]), 8)


def _murmur_bytes(data: Any, start: Any, length: Any, made: Any) -> Any:
    made = made.view(np.uint32).copy()
    words = length // 4
    for word in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > word)
        made[rows] = _murmur_word(made[rows], _word(data, start[rows] + 4 * word, np.uint32))
    for byte in range(3):
        rows = np.flatnonzero(length - 4 * words > byte)
        tail = data[start[rows] + 4 * words[rows] + byte].view(np.int8).astype(np.int32).view(np.uint32)
        made[rows] = _murmur_word(made[rows], tail)
    return _murmur_end(made, length)


def _xx_long_mixed(made: Any, word: Any) -> Any:
    return _rotated(made ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _xx_int_mixed(made: Any, word: Any) -> Any:
    return _rotated(made ^ (word.astype(np.uint64) * _P1), 23) * _P2 + _P3


def _xx_end(made: Any) -> Any:
    made = (made ^ (made >> np.uint64(33))) * _P2
    made = (made ^ (made >> np.uint64(29))) * _P3
    return (made ^ (made >> np.uint64(32))).view(np.int64)


def _xx_int(value: Any, made: Any) -> Any:
    return _xx_end(_xx_int_mixed(made.view(np.uint64) + _P5 + np.uint64(4), value.view(np.uint32)))


def _xx_long(value: Any, made: Any) -> Any:
    return _xx_end(_xx_long_mixed(made.view(np.uint64) + _P5 + np.uint64(8), value.view(np.uint64)))


def _xx_bytes(data: Any, start: Any, length: Any, made: Any) -> Any:
    seed = made.view(np.uint64)
    found = seed + _P5
    at = start.copy()
    blocks = length // 32
    wide = np.flatnonzero(blocks)
    if len(wide):
        found[wide] = _xx_blocks(data, start[wide], blocks[wide], seed[wide])
        at[wide] += 32 * blocks[wide]
    found += length.astype(np.uint64)
    end = start + length
    for size, kind, mix in ((8, np.uint64, _xx_long_mixed), (4, np.uint32, _xx_int_mixed)):
        while len(rows := np.flatnonzero(end - at >= size)):
            found[rows] = mix(found[rows], _word(data, at[rows], kind))
            at[rows] += size
    while len(rows := np.flatnonzero(end > at)):
        found[rows] = _rotated(found[rows] ^ (data[at[rows]].astype(np.uint64) * _P5), 11) * _P1
        at[rows] += 1
    return _xx_end(found)


def _xx_blocks(data: Any, start: Any, blocks: Any, seed: Any) -> Any:
    lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
    for block in range(int(blocks.max())):
        rows = np.flatnonzero(blocks > block)
        for number, lane in enumerate(lanes):
            word = _word(data, start[rows] + 32 * block + 8 * number, np.uint64)
            lane[rows] = _rotated(lane[rows] + word * _P2, 31) * _P1
    found = sum((_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros_like(seed))
    for lane in lanes:
        found = (found ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return found


def _word(data: Any, at: Any, kind: Any) -> Any:
    size = np.dtype(kind).itemsize
    return np.ascontiguousarray(data[at[:, None] + np.arange(size)]).view(kind)[:, 0]


def _bits(value: Any) -> Any:
    """Return the bits of floating-point numbers. All zeros have the same bits, and so do all NaNs."""
    plain = np.where(value == 0, value.dtype.type(0), np.where(np.isnan(value), value.dtype.type(np.nan), value))
    return plain.view(f"i{value.dtype.itemsize}")


def _of_bytes(compute: Callable[..., Any], *types: str) -> Kernel:
    """Return a kernel whose arguments are bytes or text, and the hash so far. A NULL leaves the hash unchanged."""

    def kernel(values: Any, made: Any) -> pa.Array:
        values, made = (each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in (values, made))
        known = values.is_null().to_numpy(zero_copy_only=False)
        so_far = made.to_numpy(zero_copy_only=False)
        kind = pa.large_binary()
        flat = values.fill_null("" if pa.types.is_string(values.type) else b"").cast(pa.binary()).cast(kind)
        offsets = np.frombuffer(flat.buffers()[1], np.int64)[flat.offset : flat.offset + len(flat) + 1]
        data = np.frombuffer(flat.buffers()[2] or b"", np.uint8)
        with np.errstate(all="ignore"):
            found = compute(data, offsets[:-1].copy(), np.diff(offsets), so_far)
        return pa.array(np.where(known, so_far, found))

    return declared(kernel, types)


KERNELS: Mapping[str, Kernel] = {
    "spark_murmur_int": whole(_murmur_int, "INTEGER", "INTEGER", "INTEGER"),
    "spark_murmur_bigint": whole(_murmur_long, "BIGINT", "INTEGER", "INTEGER"),
    "spark_murmur_float": whole(lambda x, made: _murmur_int(_bits(x), made), "REAL", "INTEGER", "INTEGER"),
    "spark_murmur_double": whole(lambda x, made: _murmur_long(_bits(x), made), "DOUBLE", "INTEGER", "INTEGER"),
    "spark_murmur_text": _of_bytes(_murmur_bytes, "VARCHAR", "INTEGER", "INTEGER"),
    "spark_murmur_bytes": _of_bytes(_murmur_bytes, "BLOB", "INTEGER", "INTEGER"),
    "spark_xx_int": whole(_xx_int, "INTEGER", "BIGINT", "BIGINT"),
    "spark_xx_bigint": whole(_xx_long, "BIGINT", "BIGINT", "BIGINT"),
    "spark_xx_float": whole(lambda x, made: _xx_int(_bits(x), made), "REAL", "BIGINT", "BIGINT"),
    "spark_xx_double": whole(lambda x, made: _xx_long(_bits(x), made), "DOUBLE", "BIGINT", "BIGINT"),
    "spark_xx_text": _of_bytes(_xx_bytes, "VARCHAR", "BIGINT", "BIGINT"),
    "spark_xx_bytes": _of_bytes(_xx_bytes, "BLOB", "BIGINT", "BIGINT"),
}
