"""A row on which an expression fails, from the failure to its resolution."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rowkind.avro.schema import Record
from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from rowkind.service.monitoring.status import JobStatus
from tests.kafka.sinks import committed
from tests.kafka.tables import packed
from tests.run.process import Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import COLUMNS, Shop, Told

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 200
SINKS = {
    "worth": {"mode": "append", "sql": "SELECT rating_id, 100 / stars AS worth FROM ratings"},
    "share": {
        "mode": "retract",
        "key": "payment_id",
        "sql": "SELECT p.payment_id, CAST(o.amount / p.paid AS INT) AS part "
        "FROM orders o JOIN payments p ON o.order_id = p.order_id",
    },
}
WORTH = {(1, 20.0): 1, (3, 25.0): 1, (4, 50.0): 1}
"""The result of the ratings, without the rating that fails."""


def test_a_job_goes_on_behind_a_row_that_it_failed_on(broker: Broker, tmp_path: Path) -> None:
    """The job names the row, continues after `rowkind skip`, and with a policy makes a dead letter of the next one."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"poison-{os.getpid()}")
    tables = {name: shop.table(name) for name in ("ratings", "orders")}
    tables["payments"] = shop.table("payments", exact=True)
    job = shop.job(SINKS, tables=tables)
    results = {name: Results(shop, name) for name in SINKS}
    for number, stars in ((1, 5), (3, 4)):
        shop.row("ratings", "+I", rating_id=number, stars=stars)
    bad = shop.row("ratings", "+I", rating_id=2, stars=0)
    shop.flush()

    ended = _fails(shop, job)
    place = f"ratings:{bad.partition}:{bad.offset}"
    assert "ratings: 100 / ratings.stars: division by zero" in ended
    assert f"offset {bad.offset} of partition {bad.partition}" in ended
    assert f"`rowkind skip JOB {place}`" in ended

    _refuses_rows_that_are_none(shop, job, bad)
    with Rowkind(shop.folder / "output", "skip", str(job), place) as skipped:
        assert skipped.ended(SLOW).code == 0, skipped.error
    _order(shop, amount=6)
    _payment(shop, "+I", 1, 2)
    with _run(shop, job) as running:
        _until(running, results, worth={(1, 20.0): 1, (3, 25.0): 1}, share={(1, 3): 1})
        (letter,) = _letters(shop)
        assert (letter.value(), letter.headers()[: len(bad.headers)]) == (bad.value, bad.headers)
        assert _headers(letter)["__connect.errors.stage"] == "expression"
        assert _headers(letter)["__connect.errors.offset"] == str(bad.offset)
        _widens(shop)
        _until(running, results, worth=WORTH, share={(1, 3): 1})
        # In a later step, a row derives from two records.
        _payment(shop, "+I", 2, 0)
        assert "share.join_1: " in _ended(running)

    job = shop.job(SINKS, tables=tables, on_error="dead_letter")
    port = free_port()
    with Rowkind(shop.folder / "output", "run", str(job), "--port", str(port)) as running:
        _goes_on_by_policy(shop, running, results, bad, port)
        _tells_a_broken_promise(shop, running, port)
    for result in results.values():
        assert not result.flaws
        result.close()


def _refuses_rows_that_are_none(shop: Shop, job: Path, bad: Told) -> None:
    """An address that cannot be skipped is refused with the reason."""
    wrong = {
        "nonsense": "does not identify a row: expected STEP:PARTITION:OFFSET",
        "jh.yaml:0:30": "there is no step 'jh.yaml' in the job; available: ratings, orders, payments, share.",
        "rating:0:1": "there is no step 'rating' in the job; did you mean ratings?",
        "ratings:99:1": f"there is no partition 99: topic {shop.topic('ratings')} has ",
        f"ratings:{bad.partition}:{bad.offset + 1_000}": (
            f"there is no record at offset {bad.offset + 1_000}: partition {bad.partition} of topic "
        ),
    }
    for row, text in wrong.items():
        with Rowkind(shop.folder / "output", "skip", str(job), row) as refused:
            assert refused.ended(SLOW).code == 2
            assert text in refused.error


def _widens(shop: Shop) -> None:
    """A producer adds a column."""
    wider = Record.of({**COLUMNS["ratings"], "text": "STRING"}, name="ratings")
    number = shop.registry.register(f"{shop.topic('ratings')}-value", wider)
    value = packed(wider, [{"rating_id": 4, "stars": 2, "text": "so so"}])[0]
    shop.tell("ratings", b"4", struct.pack(">bI", 0, number) + value, [("op", b"+I")])
    shop.flush()


def _goes_on_by_policy(shop: Shop, running: Rowkind, results: dict[str, Results], bad: Told, port: int) -> None:
    """With `on_error: dead_letter` the row becomes a dead letter; the job continues and reports its earlier failure."""
    _until(running, results, worth=WORTH, share={(1, 3): 1})
    until(lambda: len(_letters(shop)) == 2, "the second dead letter", lambda: running.error, SLOW)
    _payment(shop, "-U", 2, 0)
    _payment(shop, "+U", 2, 1)
    _until(running, results, worth=WORTH, share={(1, 3): 1, (2, 6): 1})
    assert len(_letters(shop)) == 2
    incidents = JobStatus.from_json(get(port, "/status.json")[1]).incidents
    failure = next(each for each in incidents if each.query == "main")
    assert "share.join_1: " in failure.what
    assert "rowkind skip" in failure.what + failure.remedy
    letter = next(each for each in _letters(shop) if each.value() != bad.value)
    assert _headers(letter)["__connect.errors.stage"] == "expression"
    assert json.loads(letter.value())["p.payment_id"] == 2


def _tells_a_broken_promise(shop: Shop, running: Rowkind, port: int) -> None:
    """A violated primary key is reported: payment 2 already exists."""
    again = _payment(shop, "+I", 2, 1)
    told = f"payments: the constraint primary_key is violated: the record at offset {again.offset}"
    until(lambda: told in get(port, "/healthz")[1], "the broken promise", lambda: running.error, SLOW)
    assert running.error.count(told) == 1


def _order(shop: Shop, amount: int) -> None:
    row = {"order_id": 1, "customer": "Ada", "amount": _money(amount), "status": "new", "placed": None}
    shop.row("orders", "+I", **row)
    shop.flush()


def _payment(shop: Shop, kind: str, number: int, paid: int) -> Told:
    told = shop.row("payments", kind, payment_id=number, order_id=1, paid=_money(paid), method="card")
    shop.flush()
    return told


def _money(amount: int) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"))


def _run(shop: Shop, job: Path) -> Rowkind:
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0")


def _fails(shop: Shop, job: Path) -> str:
    with _run(shop, job) as running:
        return _ended(running)


def _ended(running: Rowkind) -> str:
    ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    assert "Traceback" not in ended.error
    assert len(ended.said) < 25
    return ended.error


def _until(running: Rowkind, results: dict[str, Results], **wanted: dict[tuple[Any, ...], int]) -> None:
    def done() -> bool:
        assert running.running, running.error
        return all(results[name].rows() == Counter(rows) for name, rows in wanted.items())

    until(done, "the results", lambda: f"{[each.rows() for each in results.values()]}{running.error}", SLOW)


def _letters(shop: Shop) -> list[Any]:
    return committed({"bootstrap.servers": shop.servers}, shop.topic("dead-letters"))


def _headers(letter: Any) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in letter.headers()}
