"""Dashboards, alerts and the service's metrics use the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from generators.dashboards import DASHBOARDS
from generators.panels import Dashboard, Panel, model, text
from rowkind.service.execute.metrics import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
BY_NAME = {metric.name: metric for metric in METRICS}

# Labels that Prometheus adds to every series of a target and to histogram buckets, and the job's own label.
OF_PROMETHEUS = {"instance", "le", "name"}

NOT_SHOWN = {
    "rowkind_info",
    "rowkind_batch_id",
    "rowkind_broken_promise_offset",
    "rowkind_committed_offset",
    "rowkind_dead_letters_written_total",
    "rowkind_edge_rows_total",
    "rowkind_next_due_timestamp_seconds",
    "rowkind_watermark_timestamp_seconds",
}


def _panels() -> Iterator[Panel]:
    return (panel for each in DASHBOARDS for panels in each.rows.values() for panel in panels)


def targets() -> Iterator[tuple[str, str, str]]:
    """Return title, query and legend of every query of the dashboards."""
    return ((panel.title, query, legend) for panel in _panels() for legend, query in panel.queries.items())


def _alerts() -> Iterator[tuple[str, str, str]]:
    for group in YAML(typ="safe").load(DEPLOY / "prometheus" / "rules.yaml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", "")


QUERIES = [(title, query) for title, query, _ in (*targets(), *_alerts())]


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_every_metric_and_label_of_a_query_exists(title: str, query: str) -> None:
    """A query names metrics that the service exposes, and groups by labels that these metrics have."""
    names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\browkind_[a-z_]+", query)}
    assert names or "up{job=" in query, f"{title} asks for nothing of ours"
    assert names <= set(BY_NAME), f"{title}: no such metric"
    labels = {label for name in names for label in BY_NAME[name].labels} | OF_PROMETHEUS
    grouped = {label.strip() for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query) for label in group.split(",")}
    assert grouped <= labels, f"{title}: no such label"


@pytest.mark.parametrize(("title", "query", "said"), [*targets(), *_alerts()])
def test_a_text_shows_only_labels_that_its_query_keeps(title: str, query: str, said: str) -> None:
    """A label in a legend or an alert's text is a label of the metric, and is grouped by if the query groups."""
    shown = set(re.findall(r"\{\{ ?([a-z]+) ?\}\}", said))
    kept = OF_PROMETHEUS.union(*(_labels(name) for name in re.findall(r"\browkind_[a-z]+(?:_[a-z]+)*", query)))
    for group in re.findall(r"\bby\s*\(([^)]*)\)", query):
        kept &= {label.strip() for label in group.split(",")}
    assert shown <= kept, f"{title}: {shown - kept} is not there"


def _labels(metric: str) -> set[str]:
    return {*BY_NAME[re.sub(r"_bucket$", "", metric)].labels, *OF_PROMETHEUS}


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_counters_are_asked_for_as_rates_and_gauges_are_not(title: str, query: str) -> None:
    """Counters are inside rate() or increase(), and gauges never are."""
    for name in re.findall(r"\browkind_[a-z_]+", query):
        counts = name.endswith("_bucket") or BY_NAME[name].kind == "counter"
        rated = re.search(rf"(?:rate|increase)\({name}\b", query) is not None
        assert counts == rated, f"{title}: {name} is a {'counter' if counts else 'gauge'}"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.file for each in DASHBOARDS])
def test_a_dashboard_is_what_its_table_says(dashboard: Dashboard) -> None:
    """The file is the output of `python -m generators`."""
    assert (DEPLOY / "grafana" / f"{dashboard.file}.json").read_text() == text(dashboard)


def test_every_metric_is_shown_or_said_not_to_be() -> None:
    """Only a few metrics have no panel: positions, and values that a log or a page shows better."""
    asked = " ".join(query for _, query, _ in targets())
    assert {metric.name for metric in METRICS if metric.name not in asked} == NOT_SHOWN


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.file for each in DASHBOARDS])
def test_panels_have_a_sentence_and_do_not_overlap(dashboard: Dashboard) -> None:
    """Each panel has a description in a sentence, a unique id and a separate place."""
    panels = model(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
