"""Packed columns: they are restored at any width, and take no more bytes than needed."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.columns.changes import binary
from rowkind.operators.columns.packed_columns import pack, unpack

CASES = 40
NUMBERS = (0, 1, -1, 123, 124, -124, -125, 255, 256, -(1 << 31), (1 << 56) - 1, 1 << 56, (1 << 63) - 1, -(1 << 63))
DOUBLES = (0.0, -0.0, 0.1, 250.0, -2.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf)
TEXTS = (None, b"", b"a", b"abc", b"x" * 246, b"x" * 247, b"x" * 248, b"x" * 70_000)


@pytest.mark.parametrize("number", range(CASES))
def test_columns_come_back(number: int) -> None:
    """Columns of all kinds and orders survive packing, as whole arrays, as slices and without rows."""
    generator = random.Random(number)
    rows = generator.choice((0, 1, 2, 50))
    kinds = "".join(generator.choice("nfb") for _ in range(generator.randint(1, 6)))
    few = generator.random() < 0.5
    columns: list[np.ndarray | pa.Array] = []
    for kind in kinds:
        if kind == "n":
            chosen = generator.choices(NUMBERS[:4] if few else NUMBERS, k=rows)
            columns.append(np.array(chosen, np.int64))
        elif kind == "f":
            columns.append(np.array(generator.choices(DOUBLES[:1] if few else DOUBLES, k=rows), np.float64))
        else:
            columns.append(binary(generator.choices(TEXTS[1:4] if few else TEXTS, k=rows)))

    packed = pack(columns)
    first, stop = (0, rows) if generator.random() < 0.5 else sorted(generator.randint(0, rows) for _ in range(2))
    back = unpack(kinds, packed.slice(first, stop - first))

    for column, same in zip(columns, back, strict=True):
        if isinstance(column, np.ndarray):
            assert column[first:stop].tobytes() == same.tobytes()
        else:
            assert column[first:stop].to_pylist() == same.to_pylist()


def test_small_numbers_and_short_doubles_take_few_bytes() -> None:
    """A small count or a zero takes one byte; a double takes one byte plus its non-zero bytes."""
    rows = [pack([np.array([count]), np.array([double])]) for count, double in ((123, 0.0), (-124, 250.0), (300, 0.1))]

    assert [len(row[0].as_py()) for row in rows] == [1 + 1, 1 + 4, 3 + 9]


def test_first_columns_can_be_read_alone() -> None:
    """The first columns can be read without the following ones."""
    packed = pack([np.array([7, -9000]), binary([b"one", b"two"]), np.array([1, 2]), binary([None, b"three"])])

    assert unpack("n", packed)[0].tolist() == [7, -9000]
