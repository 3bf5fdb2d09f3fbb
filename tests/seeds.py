"""How many random cases a test tries: few in every run, fewer in a quick run, more in a long one.

`ROWKIND_TEST_SEEDS` in the environment is a factor: 10 in `make soak`, 0.3 in `make test`. Below 0.1, as in `make
quick`, cases also have fewer batches, and each test of an oracle, of a law or with the mark `sampled` runs with only a
few parameters (`tests/conftest.py`). The first cases are always the same.
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
    """Return the numbers of the cases from 0: `count` times the factor, and at least one."""
    return range(max(1, round(count * TIMES)))


def drawn(name: str, numbers: Iterable[int]) -> Iterator[random.Random]:
    """Yield a random generator per case, and print its seed, by which a failing case can be repeated."""
    for number in numbers:
        seed = f"{name} {number}"
        print(f"seed '{seed}'")
        yield random.Random(seed)


def some(cases: Iterable[Case]) -> Sequence[Case]:
    """Return all cases of an exhaustive test, or every third one in a shorter run."""
    return list(cases)[:: 3 if _SHORT else 1]


def few(cases: Sequence[Case], most: int) -> Sequence[Case]:
    """Return all cases, or in a quick run `most` of them at equal distances."""
    if not QUICK or len(cases) <= most:
        return cases
    return [cases[number * len(cases) // most] for number in range(most)]


def batches(count: int) -> int:
    """Return the number of batches of a case: `count`, half of it in a shorter run, a quarter in a quick run."""
    return -(-count // (4 if QUICK else 2)) if _SHORT else count
