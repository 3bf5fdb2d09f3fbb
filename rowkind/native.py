"""Small libraries in C, called through ctypes.

They are compiled when Rowkind is installed, and lie in its folders. They use neither Python's
headers nor those of another library, so one wheel per platform serves all versions of Python. Without a compiler,
Rowkind is installed without them: each caller has another way to do the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any


def load(folder: Path, name: str, prepare: Callable[[ctypes.CDLL], bool]) -> ctypes.CDLL | None:
    """Return the library `name` in a folder; None if it was not compiled or cannot be used.

    `prepare` declares what the library's functions return, and says whether the library can be used.
    """
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if not path.exists():
            continue
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(str(path))
            if prepare(library):
                return library
    return None


def address(array: Any) -> ctypes.c_void_p:
    """Return the address of a NumPy array without gaps. The array lives as long as the address."""
    assert array.flags.c_contiguous, "the library takes arrays without gaps"
    found = ctypes.c_void_p(array.ctypes.data)
    found.array = array  # type: ignore[attr-defined]
    return found
