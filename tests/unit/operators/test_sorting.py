"""Codes are sorted as NumPy sorts them, with the compiled library and without it."""

from __future__ import annotations

import numpy as np
import pytest

from rowkind.operators.columns.changes import Uint64s
from rowkind.operators.columns.sorting import in_order_of_code, order_of
from tests.numpy_only import numpy_only

COUNT = 5000
RANDOM = np.random.default_rng(7)
CODES: dict[str, Uint64s] = {
    "random": RANDOM.integers(0, 1 << 63, COUNT).astype(np.uint64) * np.uint64(2) + np.uint64(1),
    "few": RANDOM.integers(0, 9, COUNT).astype(np.uint64),
    "one": np.full(COUNT, 1 << 40, np.uint64),
    "greatest first": ~np.arange(COUNT, dtype=np.uint64),
    "as few as NumPy sorts": RANDOM.integers(0, 99, 100).astype(np.uint64),
    "none": np.empty(0, np.uint64),
    "every second of an array": RANDOM.integers(0, 1 << 63, 2 * COUNT).astype(np.uint64)[::2],
}


@pytest.mark.parametrize("name", CODES)
def test_codes_are_in_order(name: str) -> None:
    """The codes are not changed, and each row occurs once."""
    codes, before = CODES[name], CODES[name].copy()
    rows = order_of(codes)
    with numpy_only():
        expected = in_order_of_code(codes)
    assert codes[rows].tolist() == expected.tolist() == in_order_of_code(codes).tolist() == sorted(before.tolist())
    assert np.sort(rows).tolist() == list(range(len(codes)))
    assert codes.tolist() == before.tolist()
