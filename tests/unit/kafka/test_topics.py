"""Settings of the topics that `rowkind topics create` creates."""

from __future__ import annotations

import pytest

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.kafka.topics import source_topic


@pytest.mark.parametrize("mode", ["upsert", "retract"])
def test_the_topic_of_a_table_that_is_truncated_takes_the_event(mode: ChangelogMode) -> None:
    """A TRUNCATE has no key, which a compacted topic refuses, and no order among the changes of other partitions."""
    made = source_topic("t", mode, 4, truncates=True)
    assert made.partitions == 1
    assert made.config == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def test_other_upsert_topics_are_compacted() -> None:
    """They have a partition for each task, and the last row of each key."""
    made = source_topic("t", "upsert", 4)
    assert (made.partitions, made.config) == (4, {"cleanup.policy": "compact"})
