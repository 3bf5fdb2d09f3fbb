"""A topic that a job would write for two reasons, or would both write and read, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job.test_job_errors import changed, refused


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "sinks:\n",
            "dead_letters: {topic: orders}\nsinks:\n",
            (
                "1: table 'orders' reads topic 'orders', which has the dead letters: each would be read and fail "
                "again. Set another topic in `dead_letters`, or read the letters in another job"
            ),
        ),
        (
            "sinks:\n",
            "dead_letters: {topic: result}\nsinks:\n",
            (
                "1: topic 'result' would have both the dead letters and the result of sink 'result', which readers "
                "could not distinguish: set another topic in `dead_letters`"
            ),
        ),
        (
            "sinks:\n",
            "sinks:\n  other: {topic: orders, mode: append, sql: SELECT 1}\n",
            (
                "1: table 'orders' reads topic 'orders', which sink 'other' writes: the job would read its own "
                "results. Let both sinks read a view (`views`), or split the job into two jobs"
            ),
        ),
        (
            "sinks:\n",
            "sinks:\n  other: {topic: shop.main.progress, mode: append, sql: SELECT 1}\n",
            "1: topic 'shop.main.progress' is reserved for the job itself: use another topic",
        ),
    ],
)
def test_a_topic_that_feeds_its_own_job_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """The error names the topic, its uses and the next step."""
    assert refused(tmp_path, changed(old, new)) == [problem]
