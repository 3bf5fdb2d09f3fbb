"""The status page of a job, without a browser."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rowkind.service.cli.screen import screen
from rowkind.service.job.load import loaded
from rowkind.service.kafka.lag import Lag
from rowkind.service.monitoring.history import histories_json
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.web import status_page
from tests.page import scene

TOPICLESS = """
job: visits
tables:
  clicks: {mode: append, generate: {}, columns: {id: BIGINT NOT NULL, page: STRING}}
sinks:
  seen: {to: print, prefix: per page, sql: "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page"}
  gone: {to: blackhole, sql: SELECT * FROM clicks}
  kept: {mode: append, sql: SELECT id FROM clicks}
"""


@pytest.mark.parametrize(
    ("lag", "says"),
    [
        (Lag(0, 0.0, 9), "0 rows up to date"),
        (Lag(1_403, 0.4, 9), "1,403 rows oldest row less than a second old"),
        (Lag(1_403, 75.0, 9), "1,403 rows oldest row 1 min 15 s old"),
    ],
)
def test_rows_that_wait_are_never_up_to_date(lag: Lag, says: str) -> None:
    """A table with lag is not shown as up to date, even if the lag is short."""
    monitor = Monitor("orders-payments", "1", "4", "17")
    (plan,) = scene.plans(scene.job())
    monitor.add(plan.name, plan, None)
    monitor.lags(plan.name, {("orders", 0): lag})
    assert says in words(monitor)


def test_dead_letters_are_seen_with_every_plan_folded() -> None:
    """The header of the page counts the dead letters of all tables."""
    job = scene.job("shop")
    text = words(scene.lively(job, calm=frozenset(job.sinks)))
    assert "rows so far, 119 dead letters" in text


def test_the_reference_has_every_key_of_the_documents() -> None:
    """docs/reference/status.md mentions each key of `/status.json` and `/history.json`."""
    monitor = scene.troubled(scene.job())
    page = (Path(__file__).parents[3] / "docs" / "reference" / "status.md").read_text("utf-8")
    found = keys(json.loads(monitor.status().to_json())) | keys(json.loads(histories_json(monitor.history())))
    rows = {name for sink in monitor.status().queries[0].sinks for name in sink.last[0].row or ()}
    assert not {name for name in found - rows - {"main", "value"} if f"`{name}`" not in page}


@pytest.fixture
def topicless() -> Monitor:
    """A running job with a generated table, and sinks that print, discard and write to a topic."""
    return scene.lively(loaded(TOPICLESS, Path("job.yaml")), batches=6)


def test_the_page_says_where_rows_come_from_and_go_to_without_topics(topicless: Monitor) -> None:
    """The graph and the headings of sinks show generated tables, and sinks that print or discard their changes."""
    text = words(topicless)
    assert re.search(r"clicks generated [\d,]+/s lag ", text)
    for node in ("seen print", "gone blackhole", "kept sink"):
        assert re.search(rf"{node} from \S+ [\d,]+/s [\d,]+ so far", text), node
    for heading in ("seen printed to the log", "gone discarded", "kept topic kept"):
        assert f"{heading} written kind" in text


def test_a_query_has_its_page_while_another_one_is_added(topicless: Monitor) -> None:
    """A query that is added between the reading of the status and of the plans does not matter."""
    status = topicless.status()
    (plan,) = topicless.plans()
    topicless.add("second", replace(plan, name="second"), None)
    page = status_page.query_page("main", status, topicless.plans(), topicless.history())
    assert page is not None
    assert "Graph of query main" in page


def test_sinks_without_topics_have_last_changes(topicless: Monitor) -> None:
    """The last 20 changes are kept for each kind of sink, and a program that reads the status gets all of it back."""
    status = topicless.status()
    (query,) = status.queries
    assert [(sink.name, sink.to, sink.topic) for sink in query.sinks] == [
        ("seen", "print", ""),
        ("gone", "blackhole", ""),
        ("kept", "topic", "kept"),
    ]
    assert [len(sink.last) for sink in query.sinks] == [20, 20, 20]
    assert [list(sink.last[0].row or ()) for sink in query.sinks] == [["page", "n"], ["id", "page"], ["id"]]
    assert [table.topic for table in query.tables] == ["generate:clicks"]
    assert JobStatus.from_json(status.to_json()) == status


def test_a_terminal_shows_where_changes_go(topicless: Monitor) -> None:
    """`rowkind top` shows a sink's topic, or that its changes are printed or discarded."""
    console = Console(width=110)
    with console.capture() as captured:
        console.print(screen(topicless.status()))
    lines = {line.split()[0]: line for line in captured.get().splitlines() if line.startswith("  ")}
    for sink, says in (("seen", "printed to the log"), ("gone", "discarded"), ("kept", "to kept")):
        assert lines[sink].rstrip().endswith(says)
    assert re.search(r"clicks +[\d,]+/s .*lag 480,000", lines["clicks"])


def keys(document: Any) -> set[str]:
    """Return all keys of a JSON document."""
    if isinstance(document, list):
        return {name for each in document for name in keys(each)}
    return set(document) | keys([*document.values()]) if isinstance(document, dict) else set()


def words(monitor: Monitor) -> str:
    """Return the text of the page."""
    page = status_page.page(monitor.status(), monitor.plans(), monitor.history())
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
