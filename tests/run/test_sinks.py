"""The sinks of one job: how they stand to each other, batch by batch, and when one comes or goes."""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from tests.kafka.sinks import committed
from tests.run.process import Rowkind, get, until
from tests.run.results import Results, Values
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 400.0
ORDERS = {"mode": "retract", "key": "order_id", "partitions": 1, "sql": "SELECT order_id, amount FROM orders"}
SUMS = {"mode": "retract", "partitions": 1, "sql": "SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders"}
LIKED = {"mode": "append", "sql": "SELECT rating_id, stars FROM ratings"}
STARS = {"mode": "append", "sql": "SELECT stars FROM ratings"}
COUNTED = {"mode": "retract", "sql": "SELECT stars, COUNT(*) AS ratings FROM ratings GROUP BY stars"}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop in which nothing has happened yet."""
    return Shop(broker.bootstrap_servers, tmp_path, f"sinks-{os.getpid()}-{tmp_path.name}")


def run(shop: Shop, job: Path, *arguments: str) -> Rowkind:
    """The job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0", *arguments)


@pytest.mark.parametrize("atomic", [True, False])
def test_the_sinks_of_a_job_stand_at_the_same_place_after_every_batch(shop: Shop, atomic: bool) -> None:
    """A job that is stopped in the middle has both results of the same rows; with `atomic`, at every commit."""
    shop.happens(order_book(6_000, 7))
    job = shop.job({"bought": ORDERS, "sums": SUMS}, atomic=atomic, batch={"max_rows": 40})
    with run(shop, job) as running:
        until(lambda: len(_states(shop, "sums")) > 3, "a few batches", lambda: running.error, SLOW)
        running.terminate()
        assert running.ended(SLOW).code == 0, running.error
    bought, sums = _states(shop, "bought"), _states(shop, "sums")
    assert _summed(bought[-1]) == sums[-1]
    assert 0 < bought[-1].total() < sum(event.table == "orders" for event in shop.events)
    if atomic:
        assert list(map(_summed, bought)) == sums
        transactions = committed({"bootstrap.servers": shop.servers}, f"{shop.name}.main.progress")
        assert len(transactions) == len(sums)


def _states(shop: Shop, sink: str) -> list[Counter[Values]]:
    """The rows that a topic of one partition stands for after each of its transactions."""
    results, states, last = Results(shop, sink), [], None
    try:
        for message in committed({"bootstrap.servers": shop.servers}, results.topic):
            # The marker of a commit takes an offset.
            if last is not None and message.offset() > last + 1:
                states.append(results.live)
            results.apply(message)
            last = message.offset()
        assert not results.flaws
        return states if last is None else [*states, results.live]
    finally:
        results.close()


def _summed(orders: Counter[Values]) -> Counter[Values]:
    """What the sums should be of these orders."""
    amounts: list[Decimal] = [amount for _, amount in orders.elements()]
    return Counter({(len(amounts), sum(amounts)): 1})


def test_a_sink_that_comes_later_has_a_query_of_its_own_and_one_that_goes_leaves_the_others(shop: Shop) -> None:
    """What is there goes on from where it stands; the new one reads from the start; a reset puts them together."""
    for number, stars in ((1, 5), (2, 3)):
        shop.row("ratings", "+I", rating_id=number, stars=stars)
    shop.flush()
    with run(shop, shop.job({"counted": COUNTED, "liked": LIKED})) as job:
        _have(shop, job, liked=2, counted=2)
        job.terminate()
        assert job.ended().code == 0, job.error
    shop.row("ratings", "+I", rating_id=3, stars=5)
    shop.flush()
    # Without the only sink that has a stage of its own.
    later = shop.job({"liked": LIKED, "stars": STARS})
    with run(shop, later) as job:
        _have(shop, job, liked=3, stars=3)
        assert _queries(shop) == {"main", "stars"}
        metrics = get(job.port, "/metrics")[1]
        assert {query for query in ("main", "stars") if f'rowkind_up{{query="{query}"}} 1.0' in metrics} == _queries(
            shop
        )
        job.terminate()
        assert job.ended().code == 0, job.error
    assert _written(shop, "counted") == 2
    with run(shop, later, "--reset-state") as job:
        _have(shop, job, liked=6, stars=6)
        assert _queries(shop) == {"main"}
        job.terminate()
        assert job.ended().code == 0, job.error


def _have(shop: Shop, job: Rowkind, **wanted: int) -> None:
    """Wait until each of these topics has so many records."""

    def done() -> bool:
        assert job.running, job.error
        return {sink: _written(shop, sink) for sink in wanted} == wanted

    until(done, str(wanted), lambda: job.error, SLOW)


def _written(shop: Shop, sink: str) -> int:
    """How many records a result topic has."""
    return len(committed({"bootstrap.servers": shop.servers}, shop.topic(sink)))


def _queries(shop: Shop) -> set[str]:
    """The queries that have a checkpoint."""
    return {folder.name for folder in (shop.checkpoint / shop.name).iterdir()}
