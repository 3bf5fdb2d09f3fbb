"""The order code: 40 bits of an order key, so that sorting by the codes never contradicts sorting by the keys.

Order keys are bytes that compare as the rows rank. What tells two of them apart seldom stands in their first bytes:
a small number in eight bytes begins with seven that all small numbers share. So the code is a floating-point form of
the key's first 17 bytes, taken as a marker and a number of 128 bits with its sign turned over, which is how numbers,
times and decimals are written: 2 bits of marker, the sign, 7 bits for the number of leading bits without information
and the 30 bits that follow those. Whole numbers below 2^30 have a code each, timestamps of this century one per second,
doubles 18 bits of mantissa, text its first four letters.

Any bytes may be order keys: keys of another make share codes more often, which costs time and nothing else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.operators.columns.changes import Uint64s

BITS = 40
"""How many bits a code has."""

_MANTISSA = np.uint64(30)
_SIGN = np.uint64(37)
_HALF = np.uint64(32)
_WORD = np.uint64(64)
_ONE = np.uint64(1)
_READ = 17


def order_code(keys: pa.BinaryArray) -> Uint64s:
    """The code of each order key, below 2^40; of two keys the smaller one never has the larger code."""
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
    # The number shifted so that its first one bit is the first of the word; a shift by a whole word must be avoided.
    rest = np.where(in_high, low >> np.maximum(length_high, _ONE), np.uint64(0))
    shifted = (np.where(in_high, high, low) << ((_WORD - np.where(in_high, length_high, length_low)) % _WORD)) | rest
    size = (length << _MANTISSA) | ((shifted << _ONE) >> (_WORD - _MANTISSA))
    signed = np.where(positive, (_ONE << _SIGN) | size, (_ONE << _SIGN) - _ONE - size)
    code: Uint64s = (marker << np.uint64(38)) | signed
    return np.where(marker < 3, code, np.uint64((1 << BITS) - 1))


def _head(keys: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The first 17 bytes of each key as a row, zeros where it is shorter."""
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
    """The number of bits of each value, 0 for zero; by halves, because doubles hold no more than 53 bits exactly."""
    high = values >> _HALF
    of_high = np.frexp(high.astype(np.float64))[1]
    of_low = np.frexp((values & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    result: Uint64s = np.where(high > 0, of_high + 32, of_low).astype(np.uint64)
    return result
