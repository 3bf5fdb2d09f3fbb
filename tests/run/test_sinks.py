"""The sinks of one job: how they agree after each batch, and how they are added, removed and changed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

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
LIKED = {"mode": "retract", "sql": "SELECT rating_id, stars FROM ratings"}
STARS = {"mode": "append", "sql": "SELECT stars FROM ratings"}
COUNTED = {"mode": "retract", "sql": "SELECT stars, COUNT(*) AS ratings FROM ratings GROUP BY stars"}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop without any events yet."""
    return Shop(broker.bootstrap_servers, tmp_path, f"sinks-{os.getpid()}-{tmp_path.name}")


def run(shop: Shop, job: Path, *arguments: str) -> Rowkind:
    """Run the job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0", *arguments)


@pytest.mark.parametrize("atomic", [True, False])
def test_the_sinks_of_a_job_stand_at_the_same_place_after_every_batch(shop: Shop, atomic: bool) -> None:
    """A job stopped midway has written both results for the same rows; with `atomic`, this holds at every commit."""
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
        progress = committed({"bootstrap.servers": shop.servers}, f"{shop.name}.main.progress")
        transactions = [each for each in progress if json.loads(each.value() or b"{}")["extent"]]
        assert len(transactions) == len(sums)


def _states(shop: Shop, sink: str) -> list[Counter[Values]]:
    """Return the rows that a topic of one partition stands for after each of its transactions."""
    results, states, last = Results(shop, sink), [], None
    try:
        for message in committed({"bootstrap.servers": shop.servers}, results.topic):
            # A commit marker takes an offset.
            if last is not None and message.offset() > last + 1:
                states.append(results.live)
            results.apply(message)
            last = message.offset()
        assert not results.flaws
        return states if last is None else [*states, results.live]
    finally:
        results.close()


def _summed(orders: Counter[Values]) -> Counter[Values]:
    """Return the sums that belong to these orders."""
    amounts: list[Decimal] = [amount for _, amount in orders.elements()]
    return Counter({(len(amounts), sum(amounts)): 1})


def test_a_job_whose_sinks_come_and_go_and_change(shop: Shop) -> None:
    """Unchanged sinks continue, a new sink reads from the start, and changed sinks are rebuilt on request."""
    # One long test, since each start takes a while. SIGINT ends a job as SIGTERM does.
    for number, stars in ((1, 5), (2, 3)):
        shop.row("ratings", "+I", rating_id=number, stars=stars)
    shop.flush()
    with run(shop, shop.job({"counted": COUNTED, "liked": LIKED})) as job:
        _have(shop, job, liked=2, counted=2)
        os.kill(job.pid, signal.SIGINT)
        assert job.ended().code == 0, job.error
    shop.row("ratings", "+I", rating_id=3, stars=5)
    shop.flush()
    # The job loses its only sink that has a stage.
    later = shop.job({"liked": LIKED, "stars": STARS})
    with run(shop, later) as job:
        _have(shop, job, liked=3, stars=3)
        assert _queries(shop) == {"main", "stars"}
        metrics = get(job.port, "/metrics")[1]
        assert set(re.findall(r'^rowkind_up\{name="[^"]+",query="(\w+)"\} 1.0$', metrics, re.MULTILINE)) == _queries(
            shop
        )
        job.terminate()
        assert job.ended().code == 0, job.error
    assert _written(shop, "counted") == 2
    better = LIKED | {"sql": "SELECT rating_id, stars FROM ratings WHERE stars > 3"}
    changed = shop.job({"liked": better, "stars": STARS})
    _is_refused(shop, changed)
    assert (_written(shop, "liked"), _written(shop, "stars")) == (3, 3)
    _would_be_rebuilt(shop, changed)
    with run(shop, changed, "--upgrade") as job:
        # One row is retracted. Another one moves to another partition: a row without a key is placed by its bytes, and
        # these have changed.
        _have(shop, job, liked=6, stars=3)
        assert _queries(shop) == {"main", "stars"}
        job.terminate()
        assert job.ended().code == 0, job.error
    with run(shop, changed, "--reset-state") as job:
        until(lambda: job.error.count("was updated; changes written: 0") == 2, "a cut-over", lambda: job.error, SLOW)
        assert _queries(shop) == {"main"}
        shop.row("ratings", "+I", rating_id=4, stars=4)
        shop.flush()
        _have(shop, job, liked=7, stars=4)
        job.terminate()
        assert job.ended().code == 0, job.error


def _is_refused(shop: Shop, changed: Path) -> None:
    """Check that the job does not start on a checkpoint of another query, and says what has changed."""
    with run(shop, changed) as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "Traceback" not in ended.error
    for text in (str(shop.checkpoint), "belongs to another plan", "filter: none -> ", "stars > 3", "--upgrade"):
        assert text in ended.error
    assert len(ended.said) < 25


def _would_be_rebuilt(shop: Shop, changed: Path) -> None:
    """Check that `rowkind diff` says what an upgrade would do."""
    with Rowkind(shop.folder / "output", "diff", str(changed)) as asked:
        told = asked.ended(SLOW)
    assert told.code == 0, told.error
    first, *changes, reads, last = told.output.splitlines()
    assert first == f"sink liked is rebuilt, and topic {shop.topic('liked')} updated"
    assert "  scan_ratings.filter: none -> ratings.stars > 3" in changes
    assert (reads, last) == ("  rows to read: 3", "sink stars stays")


def test_a_job_whose_topic_is_made_anew(shop: Shop, admin: AdminClient) -> None:
    """The job stops with the reason; with `on_recreated: restart` it reads again and retracts the old results."""
    for number in (1, 2):
        shop.row("ratings", "+I", rating_id=number, stars=5)
    shop.flush()
    job = shop.job({"liked": LIKED})
    with run(shop, job) as running:
        _have(shop, running, liked=2)
        made_anew(shop, admin, "ratings")
        ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    shop.row("ratings", "+I", rating_id=2, stars=5)
    shop.row("ratings", "+I", rating_id=3, stars=5)
    shop.flush()
    with run(shop, job) as running:
        ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    assert f"{shop.topic('ratings')} was deleted and re-created" in ended.error
    assert "--reset-state" in ended.error
    job = shop.job({"liked": LIKED}, tables={"ratings": shop.table("ratings", start={"on_recreated": "restart"})})
    with run(shop, job) as running:
        _have(shop, running, liked=4)
        running.terminate()
        assert running.ended().code == 0, running.error
    results = Results(shop, "liked")
    try:
        assert results.rows() == Counter([(2, 5), (3, 5)])
        assert not results.flaws
    finally:
        results.close()


def made_anew(shop: Shop, admin: AdminClient, table: str) -> None:
    """Delete a topic of the shop and create it again."""
    name = shop.topic(table)
    admin.delete_topics([name])[name].result()
    until(lambda: name not in admin.list_topics(timeout=10).topics, "the end of the topic")
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    until(lambda: name in admin.list_topics(timeout=10).topics, "the new topic")


def _have(shop: Shop, job: Rowkind, **wanted: int) -> None:
    """Wait until each of these topics has this number of records."""

    def done() -> bool:
        assert job.running, job.error
        return {sink: _written(shop, sink) for sink in wanted} == wanted

    until(done, str(wanted), lambda: job.error, SLOW)


def _written(shop: Shop, sink: str) -> int:
    """Return the number of records in a result topic."""
    return len(committed({"bootstrap.servers": shop.servers}, shop.topic(sink)))


def _queries(shop: Shop) -> set[str]:
    """Return the queries that have a checkpoint."""
    return {folder.name for folder in (shop.checkpoint / shop.name).iterdir()}
