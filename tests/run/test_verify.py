"""`rowkind verify` beside a job that never stops writing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rowkind.client import Producer
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from tests.run.process import Rowkind, until
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 200.0
AT_ONCE, PAUSE = 40, 0.05
"""The load: so many changes, then a pause in seconds. They are more than a batch takes."""

_MATCHED = "SELECT p.payment_id, o.customer, p.paid FROM orders o JOIN payments p ON o.order_id = p.order_id"
_PER_CUSTOMER = (
    f"SELECT customer, COUNT(*) AS n, SUM(paid) AS paid FROM ({_MATCHED}) WHERE customer IS NOT NULL GROUP BY customer"
)
_DEAREST = """
    SELECT customer, order_id, amount FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount DESC, order_id) AS place FROM orders
    ) WHERE place <= 3
"""
SINKS: Mapping[str, Mapping[str, Any]] = {
    "matched": {"mode": "upsert", "key": "payment_id", "sql": _MATCHED},
    "per_customer": {"mode": "upsert", "key": "customer", "sql": _PER_CUSTOMER},
    "dearest": {"mode": "retract", "sql": _DEAREST},
}

MONEY = "DECIMAL(10,2)"
WRITTEN: Mapping[str, Any] = {
    "mode": "retract",
    "columns": {"customer": "STRING", "order_id": "BIGINT NOT NULL", "amount": MONEY},
}
"""The topic of the rank, to plant a fault in it."""

QUIET, PAID, MOMENT = 10_000_000, Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC)
"""The order and the payment of Zoe, which the load does not change: their id, the amount, and the time."""


@dataclass
class Load:
    """Changes that are sent to a shop without an end."""

    shop: Shop
    sent: int = 0
    failed: list[BaseException] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send changes meanwhile."""
        stop = threading.Event()
        thread = threading.Thread(target=self._send, args=[stop])
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not self.failed

    def _send(self, stop: threading.Event) -> None:
        book = order_book(1_000_000_000, 7)
        try:
            while not stop.wait(PAUSE):
                self.shop.say(islice(book, AT_ONCE))
                self.sent += AT_ONCE
        except BaseException as error:
            self.failed.append(error)
            raise


def verified(shop: Shop, job: Path, code: int) -> dict[str, dict[str, Any]]:
    """Return the audit of each sink. Fails if the command ends with another code."""
    with Rowkind(shop.folder / "output", "verify", str(job), "-o", "json") as running:
        found = running.ended(SLOW)
    assert found.code == code, found.output + found.error
    return {each["sink"]: each for each in map(json.loads, found.output.splitlines())}


def test_a_job_is_audited_while_it_writes(broker: Broker, tmp_path: Path) -> None:
    """Under constant load, no audit reports a right row, and an extra row is reported, and nothing else."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"verify-{os.getpid()}")
    job = shop.job(SINKS, batch={"max_rows": 500})
    shop.row("orders", "+I", order_id=QUIET, customer="Zoe", amount=PAID, status="new", placed=MOMENT)
    shop.row("payments", "+I", payment_id=QUIET, order_id=QUIET, paid=PAID, method=None)
    shop.flush()
    load = Load(shop)
    with Rowkind(tmp_path / "output", "run", str(job), "--port", "0") as running, load.running():
        until(lambda: wrote(running), "batches", lambda: running.error, SLOW)
        for _ in range(3):
            sent, batches = load.sent, running.error.count(" INFO batch ")
            found = verified(shop, job, 0)
            assert [(sink, each["verdict"]) for sink, each in found.items()] == [(sink, "ok") for sink in SINKS], found
            assert all(each["rows"] and not each["unsure"] for each in found.values()), found
            assert load.sent > sent
            assert running.error.count(" INFO batch ") > batches, "the job did not go on"
        plant(shop)
        found = verified(shop, job, 1)
        assert running.running
    assert {sink: each["differences"] for sink, each in found.items()} == dict.fromkeys(SINKS, 0) | {"dearest": 1}, (
        found
    )
    (difference,) = found["dearest"]["first"]
    assert difference["found"] == {"customer": "Zoe", "order_id": 1, "amount": "2.50"}
    assert difference["expected"] is None


def wrote(running: Rowkind) -> bool:
    """Return whether the job has ended some batches. Fails if the job has ended."""
    assert running.running, running.error
    return running.error.count(" INFO batch ") > 3


def plant(shop: Shop) -> None:
    """Add a row to the topic of the rank, of a customer who has one order."""
    writer = {
        "job": "writer",
        "kafka": {"bootstrap.servers": shop.servers},
        "registry": {"folder": "schemas"},
        "tables": {"dearest": {"topic": shop.topic("dearest"), **WRITTEN}},
        "sinks": {"x": {"mode": "append", "topic": "x", "sql": "SELECT customer FROM dearest"}},
    }
    file = shop.folder / "writer.yaml"
    file.write_text(json.dumps(writer))
    with Producer(file, "dearest") as dearest:
        dearest.insert({"customer": "Zoe", "order_id": 1, "amount": "2.50"})
