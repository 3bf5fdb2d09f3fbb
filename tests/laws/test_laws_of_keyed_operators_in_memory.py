"""Every law for semi joins, aggregates and normalize, over in-memory state."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.laws.keyed_subjects import GLOBAL, SUBJECTS
from tests.laws.laws import LAWS, MemoryWorld, World, insert_then_retract_leaves_nothing
from tests.laws.subjects import Subject

CHANGELOGS_EACH = 2


CASES = [
    *itertools.product(LAWS, SUBJECTS),
    *itertools.product([law for law in LAWS if law is not insert_then_retract_leaves_nothing], GLOBAL),
]


@pytest.mark.parametrize(("law", "subject"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_operator_obeys_the_law(law: Callable[[Subject, str, World], None], subject: Subject) -> None:
    """The law holds for random changelogs, whose seeds are printed."""
    for number in range(CHANGELOGS_EACH):
        seed = f"{subject}, {law.__name__}, {number}"
        print(f"seed '{seed}'")
        law(subject, seed, MemoryWorld())
