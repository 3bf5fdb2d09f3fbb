"""The order code: 40 bits that represent an order key. Sorting by codes never contradicts sorting by keys.

An order key is a byte string, and rows are ranked by their order keys. Two keys seldom differ in their first bytes. For
example, all small numbers, encoded in 8 bytes, share the first 7. The code is therefore a floating-point representation
of the key's first 17 bytes. These bytes are read as a marker byte, followed by a 128-bit number with its sign bit
flipped, because numbers, times and decimals are encoded in this way. The code consists of 2 bits of the marker, the
sign, 7 bits for the number of significant bits, and the 30 bits after the first significant bit. Every whole number
below 2^30 has its own code. Timestamps of this century have one code per second. Doubles are distinguished by 18 bits
of their mantissa, and text by its first four bytes.

An order key may consist of any bytes. If keys are encoded differently, more of them share a code, which costs only
time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.operators.columns.changes import Uint64s

BITS = 40
"""The number of bits of a code."""

_MANTISSA = np.uint64(30)
_SIGN = np.uint64(37)
_HALF = np.uint64(32)
_WORD = np.uint64(64)
_ONE = np.uint64(1)
_READ = 17


def order_code(keys: pa.BinaryArray) -> Uint64s:
    """Return the code of each order key, a number below 2^40. The smaller of two keys never has the larger code."""
    if len(keys) == 0:
        return np.empty(0, np.uint64)
    head = _head(keys)
    marker = head[:, 0].astype(np.uint64)
    high, low = (
        np.ascontiguousarray(head[:, first : first + 8]).view(">u8").ravel().astype(np.uint64) for first in (1, 9)
    )
    positive = high >> np.uint64(63) != 0
    high, low = np.where(positive, high, ~high), np.where(positive, low, ~low)
    high &= np.uint64((1 << 63) - 1)
    length_high, length_low = _bit_length(high), _bit_length(low)
    in_high = length_high > 0
    length = np.where(in_high, length_high + _WORD, length_low)
    # The number is shifted left until its first 1 bit is the top bit of the word; shifts by a whole word are avoided.
    rest = np.where(in_high, low >> np.maximum(length_high, _ONE), np.uint64(0))
    shifted = (np.where(in_high, high, low) << ((_WORD - np.where(in_high, length_high, length_low)) % _WORD)) | rest
    size = (length << _MANTISSA) | ((shifted << _ONE) >> (_WORD - _MANTISSA))
    signed = np.where(positive, (_ONE << _SIGN) | size, (_ONE << _SIGN) - _ONE - size)
    code: Uint64s = (marker << np.uint64(38)) | signed
    return np.where(marker < 3, code, np.uint64((1 << BITS) - 1))


def _head(keys: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """Return a matrix with one row per key: the key's first 17 bytes, padded with zeros."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    data = keys.buffers()[2]
    octets = np.frombuffer(b"" if data is None else data, np.uint8)
    lengths = np.diff(offsets)
    result = np.zeros((len(keys), _READ), np.uint8)
    for at in range(min(_READ, int(lengths.max()))):
        there = lengths > at
        result[there, at] = octets[offsets[:-1][there] + at]
    return result


def _bit_length(values: Uint64s) -> Uint64s:
    """Return the bit length of each value. It is computed from 32-bit halves, because doubles have only 53 bits."""
    high = values >> _HALF
    of_high = np.frexp(high.astype(np.float64))[1]
    of_low = np.frexp((values & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    result: Uint64s = np.where(high > 0, of_high + 32, of_low).astype(np.uint64)
    return result
