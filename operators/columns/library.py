"""The compiled library of the operators: `codes.c` beside this module, and `operators/arrangement/runs.c`."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from rowkind import native


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the library, or None if it was not compiled."""

    def prepare(library: ctypes.CDLL) -> bool:
        for function in (library.rk_find, library.rk_among, library.rk_consolidate, library.rk_last):
            function.restype = ctypes.c_int64
        return True

    return native.load(Path(__file__).parents[1], "kernels", prepare)
