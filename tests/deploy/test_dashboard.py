"""The dashboard, the alerts and the metrics of the service name the same things."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rowkind.service.metrics import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
BY_NAME = {metric.name: metric for metric in METRICS}

# What Prometheus itself adds to every series of a target, and to the buckets of a histogram.
OF_PROMETHEUS = {"instance", "le"}


def _dashboard() -> Any:
    return json.loads((DEPLOY / "grafana" / "rowkind.json").read_text())


def _targets() -> Iterator[tuple[str, str, str]]:
    for panel in _dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def _alerts() -> Iterator[tuple[str, str, str]]:
    for group in YAML(typ="safe").load(DEPLOY / "prometheus" / "rules.yaml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", "")


def _panels() -> Iterator[tuple[str, str]]:
    return ((title, query) for title, query, _ in _targets())


def _rules() -> Iterator[tuple[str, str]]:
    return ((title, query) for title, query, _ in _alerts())


QUERIES = [*_panels(), *_rules()]


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_every_metric_and_label_of_a_query_exists(title: str, query: str) -> None:
    """A query names metrics that the service exposes, and groups by labels that they carry."""
    names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\browkind_[a-z_]+", query)}
    assert names, f"{title} asks for nothing of ours"
    assert names <= set(BY_NAME), f"{title}: no such metric"
    labels = {label for name in names for label in BY_NAME[name].labels} | OF_PROMETHEUS
    grouped = {label.strip() for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query) for label in group.split(",")}
    assert grouped <= labels, f"{title}: no such label"


@pytest.mark.parametrize(("title", "query", "text"), [*_targets(), *_alerts()])
def test_a_text_shows_only_labels_that_its_query_keeps(title: str, query: str, text: str) -> None:
    """What a legend or an alert puts in is a label of the metric, and one of those that are grouped by, if any are."""
    shown = set(re.findall(r"\{\{ ?([a-z]+) ?\}\}", text))
    kept = {label for name in re.findall(r"\browkind_[a-z]+(?:_[a-z]+)*", query) for label in _labels(name)}
    for group in re.findall(r"\bby\s*\(([^)]*)\)", query):
        kept &= {label.strip() for label in group.split(",")}
    assert shown <= kept, f"{title}: {shown - kept} is not there"


def _labels(metric: str) -> set[str]:
    return {*BY_NAME[re.sub(r"_bucket$", "", metric)].labels, *OF_PROMETHEUS}


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_counters_are_asked_for_as_rates_and_gauges_are_not(title: str, query: str) -> None:
    """What only grows stands inside rate() or increase(); a gauge never does."""
    for name in re.findall(r"\browkind_[a-z_]+", query):
        counts = name.endswith("_bucket") or BY_NAME[name].kind == "counter"
        rated = re.search(rf"(?:rate|increase)\({name}\b", query) is not None
        assert counts == rated, f"{title}: {name} is a {'counter' if counts else 'gauge'}"


def test_the_dashboard_shows_what_an_operator_of_a_job_asks_first() -> None:
    """Throughput by kind, lag per partition, batches, state, dead letters and unmatched retractions have panels."""
    asked = " ".join(query for _, query in _panels())
    for name in (
        "rowkind_rows_in_total",
        "rowkind_rows_out_total",
        "rowkind_lag_rows",
        "rowkind_batch_duration_seconds_bucket",
        "rowkind_state_rows",
        "rowkind_state_bytes",
        "rowkind_dead_letters_total",
        "rowkind_unmatched_retractions_total",
        "rowkind_broken_promises_total",
    ):
        assert name in asked, name


def test_panels_have_a_sentence_and_do_not_overlap() -> None:
    """Each panel says in a sentence what it shows, under an id of its own and in a place of its own."""
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
