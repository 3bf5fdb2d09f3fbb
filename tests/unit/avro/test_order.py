"""Comparable bytes against the order and equality of SQL."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import itertools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.errors import SchemaError
from rowkind.avro.order import comparable, join_bytes

MOMENTS = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29)]  # noqa: DTZ001 local times
COLUMNS: dict[str, pa.Array] = {
    "boolean": pa.array([True, False, None]),
    "int": pa.array([0, -1, 1, 2**31 - 1, -(2**31), None, 255, 256], pa.int32()),
    "long": pa.array([0, -1, 1, 2**63 - 1, -(2**63), None, 1 << 40]),
    "float": pa.array([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, None], pa.float32()),
    "double": pa.array([0.0, -0.0, 1e-300, -1e300, math.inf, -math.inf, math.nan, -math.nan, None]),
    "decimal": pa.array(
        [decimal.Decimal(x) for x in ("0.00", "-0.01", "99.99", "-99.99", "12.34")], pa.decimal128(4, 2)
    ),
    "wide decimal": pa.array(
        [decimal.Decimal(x) for x in (0, -1, 10**50, -(10**50), 2**64, -(2**64))], pa.decimal256(60)
    ),
    "string": pa.array(["", "a", "a\x00", "a\x00b", "aa", "a\x01", "é", "\U0001f600", "z", None]),
    "binary": pa.array([b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x00\x01", b"\xff", b"\xff\xff", None]),
    "fixed": pa.array([b"\x00\x00", b"\x00\xff", b"\xff\x00", None], pa.binary(2)),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 1, 1), None]),
    "time": pa.array([dt.time(0), dt.time(23, 59, 59), None], pa.time32("ms")),
    "timestamp": pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")),
    "nanoseconds": pa.array([-1001, -1000, -1, 0, 1, 999, 1000, None], pa.timestamp("ns")),
}


def plain(column: pa.Array) -> list[Any]:
    """Return values that Python orders as SQL does."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    values = column.to_pylist()
    if pa.types.is_string(column.type):
        return [None if value is None else value.encode() for value in values]
    if pa.types.is_floating(column.type):
        return [None if value is None else (math.isnan(value), 0.0 if math.isnan(value) else value) for value in values]
    return values  # type: ignore[no-any-return]


def compare(left: Any, right: Any, *, descending: bool, nulls_first: bool) -> int:
    """Return -1, 0 or 1, as SQL orders two values."""
    if left is None or right is None:
        if left is right:
            return 0
        return -1 if (left is None) == nulls_first else 1
    sign = (left > right) - (left < right)
    return -sign if descending else sign


def sign_of(left: bytes, right: bytes) -> int:
    return (left > right) - (left < right)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_bytes_compare_as_the_values_do(name: str, nulls_first: bool, descending: bool) -> None:
    """For every two values of a type, including NULL, the bytes compare as SQL orders the values."""
    column = COLUMNS[name]
    packed = comparable(column, descending=descending, nulls_first=nulls_first).to_pylist()
    values = plain(column)
    for left, right in itertools.product(range(len(values)), repeat=2):
        expected = compare(values[left], values[right], descending=descending, nulls_first=nulls_first)
        assert sign_of(packed[left], packed[right]) == expected, (values[left], values[right])


@pytest.mark.parametrize("seed", range(20))
def test_several_columns_compare_like_the_tuple(seed: int) -> None:
    """The concatenated bytes of several columns, each with its own direction, sort rows like their tuples."""
    picks = random.Random(seed)
    names = picks.choices(list(COLUMNS), k=picks.randint(2, 4))
    rows = 40
    columns = [COLUMNS[name].take(pa.array(picks.choices(range(len(COLUMNS[name])), k=rows))) for name in names]
    directions = [(picks.random() < 0.5, picks.random() < 0.5) for _ in names]
    parts = [
        comparable(column, descending=descending, nulls_first=nulls_first)
        for column, (descending, nulls_first) in zip(columns, directions, strict=True)
    ]
    packed = join_bytes(parts).to_pylist()
    values = list(zip(*[plain(column) for column in columns], strict=True))

    def order(left: int, right: int) -> int:
        signs = (
            compare(a, b, descending=descending, nulls_first=nulls_first)
            for a, b, (descending, nulls_first) in zip(values[left], values[right], directions, strict=True)
        )
        return next((sign for sign in signs if sign), 0)

    by_value = sorted(range(rows), key=functools.cmp_to_key(order))
    by_bytes = sorted(range(rows), key=lambda row: packed[row])
    assert by_value == by_bytes


def test_numbers_and_times_of_different_width_agree() -> None:
    """INT equals BIGINT, FLOAT equals DOUBLE, and times and timestamps are equal across units."""
    whole = [-5, 0, 7, None]
    for narrow, wide in [
        (pa.int8(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.time32("ms"), pa.time64("us")),
        (pa.string(), pa.binary()),
    ]:
        values = (
            pa.array([str(v) if v is not None else None for v in whole]) if narrow == pa.string() else pa.array(whole)
        )
        if not pa.types.is_string(narrow):
            values = values.cast(pa.int32() if narrow.bit_width == 32 and "time" in str(narrow) else pa.int64())
        left = values.cast(narrow)
        assert comparable(left).equals(comparable(left.cast(wide))), (narrow, wide)


def test_slices_and_empty_columns() -> None:
    """A slice has the bytes of its own rows; an empty slice has none."""
    for column in COLUMNS.values():
        assert comparable(column.slice(1, 2)).to_pylist() == comparable(column).to_pylist()[1:3]
        assert len(comparable(column.slice(0, 0))) == 0
    assert comparable(pa.chunked_array([pa.array([1]), pa.array([2])])).equals(comparable(pa.array([1, 2])))


def test_all_encodings_of_nan_are_one_value() -> None:
    """NaNs of any sign and payload have the same bytes, and sort above infinity."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    packed = comparable(pa.array(np.append(bits.view(np.float64), np.inf))).to_pylist()
    assert packed[0] == packed[1] == packed[2] > packed[3]


def test_types_without_an_order_are_refused() -> None:
    """A list cannot be a key."""
    with pytest.raises(SchemaError, match="has no order"):
        comparable(pa.array([[1]]))
