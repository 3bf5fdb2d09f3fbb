"""How many random cases a test looks at: few in every run, and more where somebody has the time.

With `ROWKIND_TEST_SEEDS=10` in the environment, as `make soak` has it, there are ten times as many; the first ones are
those of every run.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("ROWKIND_TEST_SEEDS", "1"))


def seeds(few: int = 1) -> range:
    """The numbers of the cases, from 0: `few` of them unless more are asked for."""
    return range(few * TIMES)
