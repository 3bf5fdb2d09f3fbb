"""How many random cases a test looks at: few in every run, fewer in a quick one, and more where somebody has the time.

With `ROWKIND_TEST_SEEDS=10` in the environment, as `make soak` has it, there are ten times as many; with 0.5, as `make
test` has it, half, and with 0.3, as `make quick` has it, a third. The first ones are always the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

Case = TypeVar("Case")

TIMES = float(os.environ.get("ROWKIND_TEST_SEEDS", "1"))
_QUICK = TIMES < 0.5


def seeds(few: int = 1) -> range:
    """The numbers of the cases, from 0: `few` of them unless more or fewer are asked for."""
    return range(max(1, round(few * TIMES)))


def some(cases: Iterable[Case]) -> Sequence[Case]:
    """All of an exhaustive test's cases, or every third where it is to be quick."""
    return list(cases)[:: 3 if _QUICK else 1]


def batches(count: int) -> int:
    """After how many batches a case is over: `count`, or half of them where it is to be quick."""
    return (count + 1) // 2 if _QUICK else count
