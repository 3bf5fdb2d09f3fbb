"""Divides a run of the tests among several machines: `ROWKIND_TEST_PART=2/5` runs the second of five parts.

The parts together run every test once. CI uses them, because the tests need many processes for a long time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def part(text: str) -> tuple[int, int]:
    """Return the number of a part, from 1, and the number of parts. Raises ValueError."""
    number, _, of = (int(each) if each.isdigit() else 0 for each in text.partition("/"))
    if not 1 <= number <= of:
        raise ValueError(f"ROWKIND_TEST_PART={text}: expected a part such as 2/5, from 1/5 to 5/5.")
    return number, of


def in_part(names: Sequence[str], number: int, of: int) -> set[str]:
    """Return every `of`-th different name. Neighbours, which take similar times, are in different parts."""
    return set(list(dict.fromkeys(names))[number - 1 :: of])


PART = part(os.environ.get("ROWKIND_TEST_PART", "1/1"))
