"""Loads modules without garbage collections: hardly any object that modules create while they load is garbage."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Run no garbage collection inside the block, and exclude all objects that exist at its end from later ones.

    While a job's modules are loaded, collections would take an eighth of the time. Later collections would write to
    every object that they visit, and a forked process would no longer share its memory with its parent.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        # DuckDB's bindings report every object that is still alive at interpreter exit as a leak.
        atexit.register(gc.unfreeze)
