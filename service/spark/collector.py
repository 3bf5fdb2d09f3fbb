"""The collector of cycles in Python workers.

Spark's daemon collects in full after every task, and the next task that is given to the worker waits for it: 25 to
50 ms for the libraries that are loaded, seven times in a small batch of a join and a rank, 40 % of a core. What is
frozen is not gone through any more. (`gc.freeze`, made for servers that fork.)
"""

from __future__ import annotations

import gc
from collections import Counter

_tasks: Counter[str] = Counter()


def freeze_what_stays(kind: str) -> None:
    """To be called when a task of this kind begins: once the first one has loaded and compiled all, that is frozen."""
    _tasks[kind] += 1
    if _tasks[kind] == 2:
        gc.collect()
        gc.freeze()
