"""A row of 10 MB needs larger topic limits: the job says so, and succeeds once they are set."""

from __future__ import annotations

import os
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 400.0
ROOM, ENOUGH = "max.message.bytes", str(16 << 20)
PAID = "SELECT p.payment_id, o.order_id, o.status FROM orders o JOIN payments p ON o.order_id = p.order_id"


def test_a_row_of_ten_megabytes_needs_topics_with_room(broker: Broker, tmp_path: Path) -> None:
    """If the result topic's limit is too small, the job ends and names the setting; with it, both versions arrive."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"big-{os.getpid()}", config={ROOM: ENOUGH})
    job = shop.job({"paid": {"mode": "retract", "key": "payment_id", "sql": PAID}})
    big, bigger = (random.Random(size).randbytes(size).hex() for size in (5_000_000, 6_000_000))
    shop.row("orders", "+I", order_id=1, customer="a", amount=Decimal(1), status=big, placed=None)
    shop.row("payments", "+I", payment_id=7, order_id=1, paid=Decimal(1), method="card")
    shop.flush()
    with Rowkind(tmp_path / "output", "run", str(job), "--port", "0") as running:
        ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    assert "raise the topic's max.message.bytes" in ended.error
    assert "is restarted" not in ended.error
    room = ConfigEntry(ROOM, ENOUGH, incremental_operation=AlterConfigOpType.SET)
    paid = ConfigResource(ResourceType.TOPIC, shop.topic("paid"), incremental_configs=[room])
    admin = AdminClient({"bootstrap.servers": shop.servers, "log_level": 0})
    admin.incremental_alter_configs([paid])[paid].result()
    with Rowkind(tmp_path / "output", "run", str(job), "--port", "0") as running:
        results = Results(shop, "paid")
        until(lambda: bool(results.rows()), "the row", lambda: running.error, SLOW)
        assert results.live == Counter({(7, 1, big): 1})
        shop.row("orders", "-U", order_id=1, customer="a", amount=Decimal(1), status=big, placed=None)
        shop.row("orders", "+U", order_id=1, customer="a", amount=Decimal(1), status=bigger, placed=None)
        shop.flush()
        until(lambda: results.rows() == Counter({(7, 1, bigger): 1}), "the new row", lambda: running.error, SLOW)
        results.close()
        assert not results.flaws
