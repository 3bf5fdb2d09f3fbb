"""The status page of a job, without a browser."""

from __future__ import annotations

import html
import re

import pytest

from rowkind.service.kafka.lag import Lag
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


def words(monitor: Monitor) -> str:
    """Return the text of the page."""
    page = status_page.page(monitor.status(), monitor.plans())
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
