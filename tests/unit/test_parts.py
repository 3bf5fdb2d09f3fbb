"""The parts of a run of the tests, which CI divides among machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parts import in_part, part

NAMES = ["b", "a", "b", "c", "a", "d", "e"]


@pytest.mark.parametrize("of", range(1, 8))
def test_each_name_is_in_exactly_one_part(of: int) -> None:
    """All parts together have each name once, whatever the number of parts is."""
    parts = [in_part(NAMES, number, of) for number in range(1, of + 1)]
    assert sorted(name for each in parts for name in each) == ["a", "b", "c", "d", "e"]


def test_neighbours_are_in_different_parts() -> None:
    """Of two parts, the first has the first name, and the second has the next one."""
    assert (in_part(NAMES, 1, 2), in_part(NAMES, 2, 2)) == ({"b", "c", "e"}, {"a", "d"})


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "2", "-1/2"])
def test_a_part_that_does_not_exist_is_refused(wrong: str) -> None:
    """A wrong number would leave out tests without a word."""
    with pytest.raises(ValueError, match="expected a part such as 2/5"):
        part(wrong)


def test_ci_runs_all_parts() -> None:
    """The workflow starts a machine for each part, so that no test is left out."""
    workflow = (Path(__file__).parents[2] / ".github" / "workflows" / "ci.yaml").read_text()
    found = re.search(r"part: \[(.*)\]", workflow)
    assert found
    parts = [part(each.strip('"')) for each in found[1].split(", ")]
    assert parts == [(number, len(parts)) for number in range(1, len(parts) + 1)]
