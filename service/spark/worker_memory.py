"""What Python workers keep between tasks: the collector of cycles, and memory that was freed.

Spark's daemon collects in full after every task, and the next task that is given to the worker waits for it: 25 to
50 ms for the libraries that are loaded, seven times in a small batch of a join and a rank, 40 % of a core. What is
frozen is not gone through any more. (`gc.freeze`, made for servers that fork.)
"""

from __future__ import annotations

import gc
from collections import Counter

_tasks: Counter[str] = Counter()


def freeze_long_lived_objects(kind: str) -> None:
    """To be called when a task of this kind begins: once the first one has loaded and compiled all, that is frozen."""
    _tasks[kind] += 1
    if _tasks[kind] == 2:
        gc.collect()
        gc.freeze()


def release_freed_memory() -> None:
    """To be called when a task ends: memory that Arrow holds for the next one goes back to the system.

    Tasks of all kinds come to each worker in turn, and each worker would hold as much as the largest of them took.
    """
    import pyarrow as pa  # noqa: PLC0415 -- whoever only plans reads and writes has no Arrow

    pa.default_memory_pool().release_unused()
