"""The data that is stored for every release: a job with each kind of state, its checkpoint, and its broker.

The checkpoint alone is not enough, because it identifies topics by Kafka's IDs, and the written results are known from
the broker's progress topic.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import Event, order_book
from tests.chaos.checks import CHECKS, Check
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop

FOLDER = Path(__file__).parent
EVENTS = 400
_SEED = 1
_SMALL = {"log.index.size.max.bytes": 4096}
_PARTS = ("kafka", "checkpoint", "schemas")

SAVED = (
    *CHECKS,
    Check(
        "by_customer",
        {
            "mode": "upsert",
            "key": "customer",
            "sql": "SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount, MAX(amount) AS largest,"
            " COUNT(DISTINCT status) AS statuses FROM orders WHERE customer IS NOT NULL GROUP BY customer",
        },
    ),
    Check(
        "largest",
        {
            "mode": "retract",
            "key": "order_id",
            "sql": "SELECT order_id, customer, amount, n FROM (SELECT order_id, customer, amount, ROW_NUMBER() OVER"
            " (PARTITION BY customer ORDER BY amount DESC, order_id) AS n FROM orders) WHERE n <= 3",
        },
    ),
    Check(
        "unpaid",
        {
            "mode": "retract",
            "key": "order_id",
            "sql": "SELECT order_id, customer, amount FROM orders o WHERE NOT EXISTS"
            " (SELECT 1 FROM payments p WHERE p.order_id = o.order_id)",
        },
    ),
)


def broker(folder: Path) -> Broker:
    """Return a broker whose topics are stored in a folder."""
    return Broker(folder / "kafka", settings=_SMALL)


def job(shop: Shop) -> Path:
    """Return the job file."""
    return shop.job({check.name: check.sink for check in SAVED})


def book() -> Iterator[Event]:
    """Yield the events; the first `EVENTS` of them were sent when the archive was created."""
    return order_book(1_000_000, _SEED)


def await_right(results: Mapping[str, Results], shop: Shop, running: Rowkind) -> None:
    """Wait until every result equals DuckDB's."""
    right = {check.name: check.right(shop.events) for check in SAVED}

    def done() -> bool:
        assert running.running, running.error
        return all(results[name].rows() == rows for name, rows in right.items())

    until(done, "the right result", lambda: running.error)


def pack(folder: Path, archive: Path) -> None:
    """Write the parts of a folder that are stored into an archive."""
    with tarfile.open(archive, "w:xz") as target:
        for part in _PARTS:
            target.add(folder / part, part)


def unpack(archive: Path, folder: Path) -> None:
    """Extract an archive into a folder."""
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
