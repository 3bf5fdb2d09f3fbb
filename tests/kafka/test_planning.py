"""How far a batch goes."""

from __future__ import annotations

import pytest

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
