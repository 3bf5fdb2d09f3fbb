"""How many random cases a test looks at: few in every run, fewer in a quick one, and more where somebody has the time.

With `ROWKIND_TEST_SEEDS=10` in the environment, as `make soak` has it, there are ten times as many, and with 0.3, as
`make test` has it, a third. With less than 0.1, as `make quick` has it, the batches are few, too, and of the parameters
of an oracle, of a law and of a test with the mark `sampled` a few are taken (`tests/conftest.py`). The first cases are
always the same.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Case = TypeVar("Case")

TIMES = float(os.environ.get("ROWKIND_TEST_SEEDS", "1"))
QUICK = TIMES < 0.1
_SHORT = TIMES < 0.5


def seeds(count: int = 1) -> range:
    """The numbers of the cases, from 0: so many unless more or fewer are asked for, and always one."""
    return range(max(1, round(count * TIMES)))


def drawn(name: str, numbers: Iterable[int]) -> Iterator[random.Random]:
    """The dice of each case; a case that fails is found again by its seed, which is printed."""
    for number in numbers:
        seed = f"{name} {number}"
        print(f"seed '{seed}'")
        yield random.Random(seed)


def some(cases: Iterable[Case]) -> Sequence[Case]:
    """All of an exhaustive test's cases, or every third where there are to be fewer."""
    return list(cases)[:: 3 if _SHORT else 1]


def few(cases: Sequence[Case], most: int) -> Sequence[Case]:
    """All cases, or where the tests are to be quick `most` of them at equal distances."""
    if not QUICK or len(cases) <= most:
        return cases
    return [cases[number * len(cases) // most] for number in range(most)]


def batches(count: int) -> int:
    """After how many batches a case is over: `count`, or half of them, or a quarter where it is to be quick."""
    return -(-count // (4 if QUICK else 2)) if _SHORT else count
