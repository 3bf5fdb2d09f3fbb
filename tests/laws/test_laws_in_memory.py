"""Every law for every operator, over in-memory state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.laws.laws import LAWS, MemoryWorld, World
from tests.laws.subjects import SUBJECTS, Subject

CHANGELOGS_EACH = 2


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_the_operator_obeys_the_law(law: Callable[[Subject, str, World], None], subject: Subject) -> None:
    """The law holds for random changelogs, whose seeds are printed."""
    for number in range(CHANGELOGS_EACH):
        seed = f"{subject}, {law.__name__}, {number}"
        print(f"seed '{seed}'")
        law(subject, seed, MemoryWorld())
