"""The status page of a job, without a browser."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.kafka.lag import Lag
from rowkind.service.monitoring.history import histories_json
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.web import status_page
from tests.page import scene


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


def keys(document: Any) -> set[str]:
    """Return all keys of a JSON document."""
    if isinstance(document, list):
        return {name for each in document for name in keys(each)}
    return set(document) | keys([*document.values()]) if isinstance(document, dict) else set()


def words(monitor: Monitor) -> str:
    """Return the text of the page."""
    page = status_page.page(monitor.status(), monitor.plans(), monitor.history())
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
