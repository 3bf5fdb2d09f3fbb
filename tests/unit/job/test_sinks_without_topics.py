"""The settings of sinks that print or discard their changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.job.load import loaded
from tests.unit.job.test_job_errors import changed, refused

MODE = "    mode: retract\n    sql"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            "    to: print\n    mode: retract\n    key: order_id\n",
            "11: sinks.result: a sink with `to: print` has no topic: remove `mode`, `key`, or remove `to: print`",
        ),
        ("    to: blackhole\n    prefix: x\n", "11: sinks.result: `prefix` is only for sinks with `to: print`"),
        (
            "    to: printer\n    mode: retract\n",
            "12: sinks.result.to: 'printer': expected topic, print or blackhole",
        ),
        (
            '    to: print\n    prefix: "a\\nb"\n',
            "11: sinks.result: `prefix` must be one line of printable text",
        ),
        ("", "11: sinks.result: mode is missing: append, retract or upsert"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(tmp_path: Path, settings: str, problem: str) -> None:
    """The message names the settings to remove; a sink with a topic needs a mode."""
    assert problem in refused(tmp_path, changed(MODE, f"{settings}    sql"))


def test_a_sink_without_a_topic_has_the_mode_that_accepts_any_query() -> None:
    """Its name may be that of a source topic, because it writes no topic."""
    text = changed(MODE, "    to: print\n    sql").replace("  result:", "  orders:")
    sink = loaded(text, Path("job.yaml"), {}).sinks["orders"]
    assert (sink.to, sink.mode, sink.topic, sink.key) == ("print", "retract", "", ())
