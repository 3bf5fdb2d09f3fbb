"""The phases of planning: the properties that they ensure and assume, for the plans of all cases."""

from __future__ import annotations

import pytest

from rowkind.service.plan.phases import PHASES, Violations
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.query import Query
from tests.plan.cases import Case, cases, planned

PLANNED = [case for case in cases() if not case.is_refused]


@pytest.mark.sampled(60)
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.path.stem)
def test_a_phase_ensures_what_it_says(case: Case) -> None:
    """No node violates what a phase ensures, directly after it or after any later phase."""
    query, ensured = logical(planned(case)[0], "result"), list[Violations]()
    for phase in PHASES:
        query = phase(query)
        ensured += phase.ensures
        broken = {each.__name__: node for each in ensured for node in each(query)}
        assert not broken, f"after {phase.name}: {broken}"


def test_a_phase_assumes_what_phases_before_it_ensure() -> None:
    """Every property that a phase assumes is ensured by an earlier phase."""
    ensured = set[object]()
    for phase in PHASES:
        assert set(phase.assumes) <= ensured, phase.name
        ensured |= set(phase.ensures)


@pytest.mark.sampled(0)
def test_what_a_phase_ensures_was_not_so_before() -> None:
    """Each property is violated in some case before its phase; otherwise it would be trivial."""
    broken = set[str]()
    for case in PLANNED:
        query: Query = logical(planned(case)[0], "result")
        for phase in PHASES:
            broken |= {each.__name__ for each in phase.ensures if any(each(query))}
            query = phase(query)
    assert broken == {each.__name__ for phase in PHASES for each in phase.ensures}
