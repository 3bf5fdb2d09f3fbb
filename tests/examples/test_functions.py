"""The example with Python functions, which no other engine can run, over its stored changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial
from tests.examples.jobs import batches, example, stored_lines

EXPECTED: dict[str, list[list[Any]]] = {
    "moods": [[1, 2, 2, 0], [3, 1, None, 0]],
    "topics": [
        ["broken", 1, 4.0],
        ["first", 1, 4.0],
        ["good", 1, 4.0],
        ["great", 1, 5.0],
        ["lamp", 2, 4.5],
        ["works", 2, 5.0],
    ],
    "typical_prices": [
        ["lamp", "AT", 24.0, 1, 0],
        ["lamp", "CH", 10.8, 1, 0],
        ["lamp", None, 10.8, 2, 1],
        [None, None, 10.8, 2, 3],
    ],
    "tags": [["home", 2, 10.0], ["light", 2, 10.0], ["sale", 1, 10.0]],
}


@pytest.mark.parametrize("sink", EXPECTED)
@pytest.mark.parametrize("rows", [1, 5, 99])
def test_the_functions_of_the_example_follow_its_changes(sink: str, rows: int) -> None:
    """For batches of any size, the result is that of the remaining products and reviews."""
    job = example("reviews")
    changes = batches(job, stored_lines("reviews"), rows)
    rows = trial.results(job, plan(job, sink), changes, trial.in_memory(print), fold=True)
    found = [list(each["row"].values()) for each in rows]
    assert sorted(found, key=json.dumps) == EXPECTED[sink]
