"""Every law for every operator, over in-memory state."""

from __future__ import annotations

import pytest

from tests.laws.cases import CASES, Law, name
from tests.laws.laws import MemoryWorld
from tests.laws.subjects import Subject
from tests.seeds import seeds

CHANGELOGS_EACH = seeds()


@pytest.mark.sampled(30)
@pytest.mark.parametrize(("law", "subject"), CASES, ids=name)
def test_the_operator_obeys_the_law(law: Law, subject: Subject) -> None:
    """The law holds for random changelogs, whose seeds are printed."""
    for number in CHANGELOGS_EACH:
        seed = f"{subject}, {name(law)}, {number}"
        print(f"seed '{seed}'")
        law(subject, subject.batches(seed, batches=4, changes=8), MemoryWorld())
