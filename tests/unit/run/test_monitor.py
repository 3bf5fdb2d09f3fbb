"""What a job's status makes of Spark's progress."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rowkind.service.run.monitor import Monitor

PROGRESS = {
    "batchId": 55,
    "durationMs": {
        "addBatch": 245,
        "commitOffsets": 8,
        "getBatch": 1,
        "latestOffset": 6,
        "queryPlanning": 33,
        "triggerExecution": 303,
        "walCommit": 7,
    },
    "stateOperators": [{"commitTimeMs": 3}, {"commitTimeMs": 2}],
    "sources": [{"endOffset": "null", "latestOffset": "null"}],
}
"""Of a batch of a join of which there are two levels."""


def test_the_stages_of_a_batch_are_all_of_it(tmp_path: Path) -> None:
    """What Spark times of a batch, and what is left of it, add up to how long it took; commits are told besides."""
    monitor = Monitor("job", "1", "4")
    monitor.add("main", ["sink"], "plan", tmp_path)
    monitor.progress("main", PROGRESS)
    families = text_string_to_metric_families(monitor.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    stages = {each.labels["stage"]: each.value for each in samples if each.name == "rowkind_batch_seconds_total"}
    assert stages == {"source": 0.006, "planning": 0.034, "log": 0.015, "tasks": 0.245, "other": 0.003, "commit": 0.005}
    (duration,) = (each.value for each in samples if each.name == "rowkind_batch_duration_seconds_sum")
    assert sum(stages.values()) - stages["commit"] == duration
