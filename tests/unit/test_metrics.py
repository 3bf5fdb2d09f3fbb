"""The list of metrics and their exposition to Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from generators.metrics_page import PAGE, page
from rowkind.service.execute.metrics import METRICS, add, parse, sample
from rowkind.service.monitoring.exposition import Exposition

ROOT = Path(__file__).parents[2]


def test_names_follow_prometheus() -> None:
    """A metric has the prefix, base units, `_total` if and only if it is a counter, and a sentence as help."""
    for metric in METRICS:
        assert re.fullmatch(r"rowkind_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not re.search(r"_(ms|millis|kb|mb|percent)\b", metric.name)
        assert metric.help.endswith(".")


def test_the_page_is_up_to_date() -> None:
    """The page equals the output of `python -m generators` and has a line for every metric."""
    assert (ROOT / PAGE).read_text() == page()
    assert re.findall(r"^\| `(\w+)`", page(), re.MULTILINE) == [each.name for each in METRICS]


def test_a_samples_name_survives_with_any_label() -> None:
    """Quotes, backslashes and line breaks in labels are escaped as in the exposition format."""
    name = sample("rowkind_rows_in_total", table='a"b\\c\nd', kind="+I")
    assert parse(name) == ("rowkind_rows_in_total", {"table": 'a"b\\c\nd', "kind": "+I"})


def test_counters_add_up_and_gauges_replace() -> None:
    """Counters of several blocks are summed, and for gauges the last value counts."""
    into: dict[str, float] = {}
    for rows, state in ((2, 10), (3, 20)):
        add(
            into,
            {'rowkind_rows_in_total{table="t",kind="+I"}': rows, 'rowkind_state_rows{operator="o",shard="0"}': state},
        )
    assert list(into.values()) == [5, 20]


def test_the_exposition_sums_state_over_shards() -> None:
    """The last size of each shard is summed, and operators with equal names in two sinks are separate."""
    metrics = Exposition("j")
    kept = 'rowkind_state_rows{{sink="{}",operator="join",shard="{}"}}'
    metrics.add({kept.format("s", 0): 10, kept.format("s", 1): 5}, "main")
    metrics.add({kept.format("other", 0): 100}, "main")
    metrics.add({kept.format("s", 0): 7}, "main")
    samples = _samples(metrics)
    assert samples["rowkind_state_rows", (("operator", "join"), ("sink", "s"))] == 12
    assert samples["rowkind_state_rows", (("operator", "join"), ("sink", "other"))] == 100
    assert not [name for name, _ in samples if name.endswith("_created")]


def test_what_rode_with_blocks_is_the_querys_unless_it_is_a_sinks() -> None:
    """Samples without a query get the reporting query as a label; samples of a sink are summed by the sink alone."""
    metrics = Exposition("j")
    for query, rows in (("main", 2), ("later", 3), ("main", 4)):
        metrics.add({'rowkind_rows_in_total{table="t",kind="-U"}': rows}, query)
    metrics.add({'rowkind_rows_out_total{sink="s",kind="-U"}': 2}, "main")
    metrics.add({'rowkind_rows_out_total{sink="s",kind="-U"}': 3}, "main")
    metrics.observe("rowkind_batch_duration_seconds", 0.3, 1, query="main")
    samples = _samples(metrics)
    read = {
        dict(labels)["query"]: value for (name, labels), value in samples.items() if name == "rowkind_rows_in_total"
    }
    assert read == {"main": 6, "later": 3}
    assert samples["rowkind_rows_out_total", (("kind", "-U"), ("sink", "s"))] == 5
    assert samples["rowkind_batch_duration_seconds_count", (("query", "main"),)] == 1


def test_a_histogram_observes_so_many_at_once() -> None:
    """Latencies are computed from creation times at the end of a batch, and each sample counts several records."""
    metrics = Exposition("j")
    waits = 'rowkind_latency_seconds{{table="t",made="{}"}}'
    metrics.add({waits.format(99_800): 3, waits.format(98_000): 2, waits.format(200_000): 1}, "main", ended=100.0)
    samples = _samples(metrics)
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in samples.items()
        if name == "rowkind_latency_seconds_bucket"
    }
    assert (buckets["0.1"], buckets["0.25"], buckets["1.0"], buckets["2.5"], buckets["+Inf"]) == (1, 4, 4, 6, 6)
    of = ("query", "main"), ("table", "t")
    assert samples["rowkind_latency_seconds_count", of] == 6
    assert samples["rowkind_latency_seconds_sum", of] == pytest.approx(3 * 0.2 + 2 * 2)


def _samples(metrics: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples by name and labels, and assert that each has the job's name."""
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [one for family in families for one in family.samples]
    assert {one.labels.pop("name") for one in samples} == {"j"}
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}
