"""The order of 64-bit codes, such as hashes and places."""

from __future__ import annotations

import ctypes

import numpy as np

from rowkind.native import address
from rowkind.operators.columns import library
from rowkind.operators.columns.changes import Indices, Uint64s

_MANY = 1 << 11
"""The number of codes from which on the compiled library is faster than NumPy."""


def order_of(codes: Uint64s) -> Indices:
    """Return the indices that sort the codes. The order of equal codes is arbitrary."""
    rows = np.empty(len(codes), np.int64)
    return rows if _sorted(codes, rows) is not None else np.argsort(codes)


def in_order_of_code(codes: Uint64s) -> Uint64s:
    """Return the codes in ascending order."""
    found = _sorted(codes, None)
    return np.sort(codes) if found is None else found


def _sorted(codes: Uint64s, rows: Indices | None) -> Uint64s | None:
    """Sort a copy of the codes by the compiled library, and fill `rows`. Return None if this could not be done."""
    kernels = library.kernels()
    if kernels is None or len(codes) < _MANY:
        return None
    result = np.array(codes, np.uint64)
    failed = kernels.rk_sort64(address(result), None if rows is None else address(rows), ctypes.c_int64(len(codes)))
    return None if failed else result
