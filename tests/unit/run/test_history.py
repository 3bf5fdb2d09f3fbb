"""The history of a query: an hour in slots of 10 s, and a day in slots of 5 min."""

from __future__ import annotations

import json
import sys

import pytest

from rowkind.service.monitoring.history import QueryHistory, _Ring, histories_json

NOON = 1_767_268_800.0


def test_rows_become_rates_and_seconds_become_a_share() -> None:
    """Rows of a slot are divided by its seconds, and seconds of work by those of all tasks."""
    history = QueryHistory()
    for at in (0, 3, 9):
        history.add("read", 20, NOON + at)
    history.add("busy", 5, NOON + 1)
    hour, day = history.ranges(NOON + 10, tasks=2)
    assert (hour.measured, day.measured) == (1, 0)
    assert (hour.seconds, hour.until, len(hour.series("read"))) == (10, NOON + 10, 359)
    assert hour.series("read")[-1] == 6
    assert hour.series("busy")[-1] == 0.25
    assert set(day.series("read")) == {None}
    _, day = history.ranges(NOON + 300, tasks=2)
    assert day.series("read")[-1] == 0.2


def test_the_rows_of_a_long_batch_are_spread_over_its_time() -> None:
    """A batch of 40 s is no peak of 10 s, even if its first slots have not been touched before."""
    history = QueryHistory()
    history.add("read", 1_000, NOON + 45, 40)
    hour, _ = history.ranges(NOON + 50, tasks=1)
    assert hour.series("read")[-6:] == [None, 12.5, 25, 25, 25, 12.5]


def test_a_peak_of_the_lag_is_kept_and_a_pause_is_a_gap() -> None:
    """A slot has the highest value, and a slot in which nothing was measured has none."""
    history = QueryHistory()
    for at, rows in ((0, 5), (2, 90), (4, 1), (30, 7)):
        history.raise_to("lag_rows", rows, NOON + at)
    hour, _ = history.ranges(NOON + 40, tasks=1)
    assert hour.series("lag_rows")[-4:] == [90, None, None, 7]
    assert hour.series("read")[-4:] == [0, None, None, 0]


def test_latencies_become_quantiles() -> None:
    """The median and the 99th percentile of a slot are within 5 %, and each slot starts empty."""
    history = QueryHistory()
    for seconds in range(1, 101):
        history.observe(seconds / 10, 3, NOON)
    history.observe(0.5, 1, NOON + 10)
    hour, _ = history.ranges(NOON + 20, tasks=1)
    assert hour.series("latency_p50")[-2] == pytest.approx(5, rel=0.05)
    assert hour.series("latency_p99")[-2] == pytest.approx(9.9, rel=0.05)
    assert hour.series("latency_p99")[-1] == pytest.approx(0.5, rel=0.05)


def test_an_hour_later_the_slots_are_used_again() -> None:
    """A slot of an earlier hour does not appear again, and a clock that goes back changes only the current slot."""
    history = QueryHistory()
    history.add("read", 10, NOON)
    history.add("read", 30, NOON + 3_600)
    history.add("read", 30, NOON + 5)
    hour, _ = history.ranges(NOON + 3_610, tasks=1)
    assert [each for each in hour.series("read") if each is not None] == [6]


def test_a_query_takes_29_kb() -> None:
    """The arrays of a query have the size that the docs mention, whatever happens."""
    rings = QueryHistory()._rings
    for ring in rings:
        assert isinstance(ring, _Ring)
    taken = sum(sys.getsizeof(each) for ring in rings for each in (ring._values, ring._numbers))
    assert 28_000 < taken < 30_000


def test_the_document_has_every_query_and_series() -> None:
    """The JSON document maps each query to its two ranges, with null where there is no value."""
    history = QueryHistory()
    history.add("written", 10, NOON)
    said = json.loads(histories_json({"main": history.ranges(NOON + 10, 1)}))
    assert [each["seconds"] for each in said["main"]] == [10, 300]
    assert said["main"][0]["series"]["written"][-2:] == [None, 1]
    assert len(said["main"][0]["series"]) == 9
