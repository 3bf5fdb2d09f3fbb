"""How many records a batch reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.service.kafka import planning
from tests.kafka.tables import Topic, order, planner

pytestmark = pytest.mark.kafka


def test_a_batch_goes_as_far_as_its_bytes_allow(orders: Topic) -> None:
    """A byte limit bounds the batch, whatever its limit of rows is; one row always fits."""
    orders.send(*((b"+I", order(number, "x" * 1000)) for number in range(3_000)))
    plan = planner(orders.spec(bytes_per_batch=200_000))
    end = plan.end(plan.initial(), 1_000_000)
    assert 160 < end.at[orders.name, 0] < 185
    assert plan.end(end, 10).at[orders.name, 0] == end.at[orders.name, 0] + 10
    plan = planner(orders.spec(bytes_per_batch=1))
    assert plan.end(plan.initial(), 1_000_000).at[orders.name, 0] == 1


def test_a_batch_of_a_backlog_is_as_large_as_two_seconds_allow(orders: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has at most twice and at least half the rows of the previous one, and never fewer than the first."""
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


def test_batches_keep_their_minimum_interval(orders: Topic) -> None:
    """New records wait for the interval, but not if the last batch left some, or if the query stops at the end."""
    orders.send(*((b"+I", order(number, "x")) for number in range(10)))
    now = 100.0
    plan = planner(orders.spec(min_interval_ms=500), lambda: now)
    first = plan.end(plan.initial(), 4)
    second = plan.end(first, 100)
    assert (first.at[orders.name, 0], second.at[orders.name, 0]) == (4, 10)
    orders.send((b"+I", order(10, "x")))
    now += 0.4
    assert plan.end(second, 100) is second
    now += 0.2
    assert plan.end(second, 100).at[orders.name, 0] == 11
    plan.stop_at_now()
    assert plan.end(second, 100).at[orders.name, 0] == 11


def test_batches_on_record_are_offered_first_and_as_they_were(orders: Topic, tmp_path: Path) -> None:
    """Each recorded batch keeps its number, time and records; new batches follow unless `replay_only` is set."""
    orders.send(*((b"+I", order(number, "x")) for number in range(6)))
    plan = planner(orders.spec())
    first = plan.end(plan.initial(), 2)
    second = plan.end(first, 3)
    assert (first.number, second.number) == (0, 1)
    assert 0 < first.now <= second.now
    file = tmp_path / "replay"
    file.write_text(json.dumps([first.to_json(), second.to_json()]))
    again = planner(orders.spec(replay_file=str(file), replay_only=True))
    assert again.end(again.initial(), 100) == first
    assert again.end(first, 100) == second
    assert again.end(second, 100) is second
    again = planner(orders.spec(replay_file=str(file)))
    assert again.end(first, 100) == second
    third = again.end(second, 100)
    assert (third.number, third.begin, third.at[orders.name, 0]) == (2, second.at, 6)


def test_the_first_batch_of_a_run_reports_state(orders: Topic) -> None:
    """A resumed run has such a batch even if there are no new records, but only one."""
    orders.send((b"+I", order(1, "x")))
    plan = planner(orders.spec(levels=(1,)))
    end = plan.end(plan.initial(), 10)
    assert plan.begins_run()
    assert plan.end(end, 10) is end
    later = planner(orders.spec(levels=(1,)))
    empty = later.end(end, 10)
    assert (empty.number, empty.at, empty.begin) == (1, end.at, end.at)
    assert later.tasks(end, empty) == [()]
    assert later.begins_run()
    assert later.end(empty, 10) is empty
