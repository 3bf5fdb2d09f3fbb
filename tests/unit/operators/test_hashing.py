"""The hash of keys against fixed values; stored state and shard numbers depend on it, so it must never change."""

import random
from collections.abc import Iterator

import pytest

from rowkind.operators.columns.changes import binary
from rowkind.operators.columns.hashing import LONGEST, hash64, sketch64
from tests.numpy_only import numpy_only

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_MASK = (1 << 64) - 1


@pytest.fixture(params=["compiled library", "NumPy"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to compute a hash."""
    if request.param == "NumPy":
        with numpy_only():
            yield
    else:
        yield


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_known_values_of_xxh64_with_seed_0_come_out(value: bytes, expected: int) -> None:
    """The hashes equal the published test values of XXH64; a change would make every stored state unreadable."""
    assert hash64(binary([value])).tolist() == [expected]


def test_a_value_longer_than_the_limit_has_a_golden_hash_too() -> None:
    """Values longer than the limit are reduced with BLAKE2b first, and this is part of the format."""
    assert hash64(binary([b"x" * (LONGEST + 1), b"x" * LONGEST])).tolist() == [0xE637D0C135A2617A, 0x0797881285F20EE3]


def test_all_lengths_agree_with_the_specification_written_out_for_one_value() -> None:
    """Values of every length up to 300 bytes have the hash of the scalar algorithm, in any batch."""
    values = [random.Random(length).randbytes(length) for length in range(300)]
    shuffled = random.Random(7).sample(values, len(values))
    assert hash64(binary(shuffled)).tolist() == [_xxh64(value) for value in shuffled]


def test_a_slice_of_an_array_hashes_like_a_copy_of_it() -> None:
    """A slice, whose buffers have an offset, has the same hashes as a copy of it, with equal lengths or not."""
    for values in ([b"one", b"three", b"", b"fourteen"], [b"aaa", b"bbb", b"ccc", b"ddd"]):
        assert hash64(binary(values)[1:3]).tolist() == hash64(binary(values[1:3])).tolist()
    assert hash64(binary([])).tolist() == []
    assert hash64(binary([b"", b""])).tolist() == [0xEF46DB3751D8E999] * 2


def test_null_hashes_like_the_empty_value() -> None:
    """A null hashes like the empty value; callers that need another hash for null set it themselves."""
    assert hash64(binary([None, b"a"])).tolist() == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B]


def test_a_sketch_is_the_same_in_both_ways() -> None:
    """Codes of values of all lengths, nulls and slices."""
    values = binary([None, *(random.Random(length).randbytes(length) for length in range(40)), b"", b"12345678"])
    for part in (values, values[3:20], values[:0]):
        found = sketch64(part).tolist()
        with numpy_only():
            assert found == sketch64(part).tolist()


def _xxh64(value: bytes) -> int:
    one, two, three, four, five = _PRIMES
    position = 0
    if len(value) >= 32:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while position + 32 <= len(value):
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _number(value, position + 8 * lane, 8))
            position += 32
        result = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane_value in lanes:
            result = ((result ^ _round(0, lane_value)) * one + four) & _MASK
    else:
        result = five
    result = (result + len(value)) & _MASK
    while position + 8 <= len(value):
        result = (_rotate(result ^ _round(0, _number(value, position, 8)), 27) * one + four) & _MASK
        position += 8
    if position + 4 <= len(value):
        result = (_rotate(result ^ _number(value, position, 4) * one & _MASK, 23) * two + three) & _MASK
        position += 4
    for octet in value[position:]:
        result = _rotate(result ^ octet * five & _MASK, 11) * one & _MASK
    result = (result ^ result >> 33) * two & _MASK
    result = (result ^ result >> 29) * three & _MASK
    return result ^ result >> 32


def _number(value: bytes, position: int, size: int) -> int:
    return int.from_bytes(value[position : position + size], "little")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(accumulator: int, word: int) -> int:
    return _rotate((accumulator + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK
