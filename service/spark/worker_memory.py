"""Manages the memory of Python workers between tasks: freezes long-lived objects, and releases freed memory.

Spark's daemon runs a full garbage collection after every task, and the worker's next task waits for it. With the loaded
libraries, a collection takes 25 to 50 ms. A small batch of a join and a rank has seven collections, which take 40% of a
core. Frozen objects are no longer scanned. (`gc.freeze` was designed for servers that fork.)
"""

from __future__ import annotations

import gc
from collections import Counter

_tasks: Counter[str] = Counter()


def freeze_long_lived_objects(kind: str) -> None:
    """Freeze long-lived objects. Call this function at the start of every task.

    The second call with the same `kind` freezes everything that the first task has loaded and compiled.
    """
    _tasks[kind] += 1
    if _tasks[kind] == 2:
        gc.collect()
        gc.freeze()


def release_freed_memory() -> None:
    """Return the memory that Arrow keeps for the next task to the system. Call this function at the end of a task.

    Each worker runs tasks of all kinds, one after the other, and would otherwise keep the memory of the largest task.
    """
    import pyarrow as pa  # noqa: PLC0415 -- workers that only plan reads and writes have no Arrow

    pa.default_memory_pool().release_unused()
