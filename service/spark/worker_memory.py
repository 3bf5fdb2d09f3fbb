"""Memory of Python workers between tasks: the garbage collector's long-lived objects, and freed memory.

Spark's daemon runs a full collection after every task, and the worker's next task waits for it. That takes 25 to 50 ms
for the loaded libraries, seven times in a small batch of a join and a rank, 40% of a core. Frozen objects are no longer
scanned. (`gc.freeze` was made for servers that fork.)
"""

from __future__ import annotations

import gc
from collections import Counter

_tasks: Counter[str] = Counter()


def freeze_long_lived_objects(kind: str) -> None:
    """Freeze long-lived objects. Called at the start of every task.

    The second call of a kind freezes everything that the first task has loaded and compiled.
    """
    _tasks[kind] += 1
    if _tasks[kind] == 2:
        gc.collect()
        gc.freeze()


def release_freed_memory() -> None:
    """Return memory that Arrow keeps for the next task to the system. Called at the end of a task.

    Each worker runs tasks of all kinds in turn, and would otherwise keep as much as the largest of them took.
    """
    import pyarrow as pa  # noqa: PLC0415 -- workers that only plan reads and writes have no Arrow

    pa.default_memory_pool().release_unused()
