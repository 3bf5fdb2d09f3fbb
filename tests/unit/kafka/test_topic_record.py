"""Changes to a sink's topic since a query wrote it: which of them make the result wrong, and the messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rowkind.service.kafka.topic_record import TopicRecord

BEFORE = TopicRecord("a", (0, 10), (5, 20))
CHANGES: dict[str, tuple[TopicRecord | None, str, bool]] = {
    "nothing": (BEFORE, "", False),
    "more records": (replace(BEFORE, ends=(7, 20)), "", False),
    "deleted": (None, "was deleted", True),
    "made anew": (TopicRecord("b", (0, 0), (0, 0)), "was deleted and re-created", True),
    "made anew, grown since": (TopicRecord("b", (0, 0, 0), (9, 30, 1)), "was deleted and re-created", True),
    "shortened": (replace(BEFORE, starts=(0, 15)), "partition 1 begins at offset 15, not 10", False),
    "emptied": (replace(BEFORE, starts=(5, 20)), "partition 0 begins at offset 5, not 0", False),
    "grown": (TopicRecord("a", (0, 10, 0), (5, 20, 0)), "has 3 partitions, not 2", False),
    "cut at its end": (replace(BEFORE, ends=(5, 19)), "partition 1 ends at offset 19, not 20", True),
    "grown and cut": (TopicRecord("a", (0, 10, 0), (4, 20, 0)), "partition 0 ends at offset 4, not 5", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_if_it_makes_the_result_wrong(change: str) -> None:
    """If a topic must keep all rows, any loss is reported; otherwise only a deletion or a cut end is."""
    now, told, always = CHANGES[change]
    assert told in BEFORE.harm(now, keeps_all=True)
    assert bool(BEFORE.harm(now, keeps_all=True)) == bool(told)
    assert bool(BEFORE.harm(now, keeps_all=False)) == always


def test_a_record_is_read_as_it_was_noted() -> None:
    """A topic record survives JSON."""
    assert TopicRecord.from_json(json.loads(json.dumps(BEFORE.to_json()))) == BEFORE
