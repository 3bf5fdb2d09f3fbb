"""The order code of order keys."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.order import comparable, join_bytes
from rowkind.operators.columns.changes import binary
from rowkind.operators.columns.order_code import BITS, order_code


def test_codes_never_contradict_the_order_of_any_bytes() -> None:
    """Sorted keys have ascending codes, whatever their bytes and lengths."""
    seed = "order codes"
    print(f"seed '{seed}'")
    generator = random.Random(seed)
    octets = [0, 1, 2, 3, 127, 128, 254, 255]
    keys = [bytes(generator.choices(octets, k=generator.randint(0, 20))) for _ in range(20_000)]
    codes = order_code(binary(sorted(keys)))
    assert (codes[1:] >= codes[:-1]).all()
    assert int(codes.max()) < 1 << BITS


@pytest.mark.parametrize("descending", [False, True])
def test_codes_follow_numbers_of_any_size(descending: bool) -> None:
    """Codes are in the order of the numbers around every power of two, of both signs."""
    numbers = {sign * ((1 << power) + step) for power in range(62) for step in (-1, 0, 1) for sign in (-1, 1)}
    column = pa.array(sorted(numbers, reverse=descending), pa.int64())
    codes = order_code(comparable(column, descending=descending))
    assert (codes[1:] >= codes[:-1]).all()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(-5000, 5000), pa.int64()),
        pa.array(range(-5000, 5000), pa.int32()),
        pa.array(range(-5000, 5000), pa.int64()).cast(pa.decimal128(21, 2)),
        pa.array([1_792_000_000 + second for second in range(10_000)], pa.timestamp("s")),
        pa.array(range(10_000), pa.int32()).cast(pa.date32()),
        pa.array([0.5 + number for number in range(10_000)], pa.float64()),
        pa.array([f"{number:04}" for number in range(10_000)]),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("descending", [False, True])
def test_values_of_common_types_have_codes_of_their_own(column: pa.Array, descending: bool) -> None:
    """10,000 different values in a narrow range have more than 9,000 different codes."""
    assert len(np.unique(order_code(comparable(column, descending=descending)))) > 9_000


def test_nulls_have_codes_of_their_own() -> None:
    """The code of NULL is below or above those of all values, as its marker says."""
    column = pa.array([None, -(1 << 62), 1 << 62], pa.int64())
    first, *values = order_code(comparable(column, nulls_first=True)).tolist()
    last, *_ = order_code(comparable(column, nulls_first=False)).tolist()
    assert first < min(values)
    assert last > max(values)


def test_a_second_column_counts_where_the_first_leaves_room() -> None:
    """Rows with an equal small first column have different codes by their second column."""
    first, second = pa.array([3] * 100, pa.int64()), pa.array([number << 50 for number in range(100)], pa.int64())
    assert len(np.unique(order_code(join_bytes([comparable(first), comparable(second)])))) > 10
