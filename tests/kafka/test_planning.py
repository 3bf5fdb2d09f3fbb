"""How far a batch goes."""

from __future__ import annotations

import pytest

from rowkind.service.kafka import planning
from tests.kafka.tables import Topic, order, planner

pytestmark = pytest.mark.kafka


def test_a_batch_goes_as_far_as_its_bytes_allow(orders: Topic) -> None:
    """Of rows of 1 kB, 200 kB are some 200, whatever number of rows the batch may have; one row fits in any case."""
    orders.send(*((b"+I", order(number, "x" * 1000)) for number in range(3_000)))
    plan = planner(orders.spec(bytes_per_batch=200_000))
    end = plan.end(plan.initial(), 1_000_000)
    assert 160 < end.at[orders.name, 0] < 185
    assert plan.end(end, 10).at[orders.name, 0] == end.at[orders.name, 0] + 10
    plan = planner(orders.spec(bytes_per_batch=1))
    assert plan.end(plan.initial(), 1_000_000).at[orders.name, 0] == 1


def test_a_batch_of_a_backlog_is_as_large_as_two_seconds_allow(orders: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one before, twice or half of its rows at most, and never fewer than the first one."""
    monkeypatch.setattr(planning, "_LEAST_ROWS", 200)
    orders.send(*((b"+I", order(number, "x")) for number in range(4_000)))
    now = 0.0
    plan = planner(orders.spec(), lambda: now)
    end = plan.end(plan.initial(), 1_000_000)
    taken = [end.at[orders.name, 0]]
    for seconds in (0.5, 0.5, 2.0, 4.0, 1000.0, 1000.0, 0.1):
        now += seconds
        begin, end = end, plan.end(end, 1_000_000)
        taken.append(end.at[orders.name, 0] - begin.at[orders.name, 0])
    assert taken == [200, 400, 800, 800, 400, 200, 200, 400]
