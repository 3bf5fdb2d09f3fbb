"""The data in the topics: orders and their payments, with the same rows for the same seed.

- `append`: every order once, in random order, and payments for uniformly drawn orders. 1 % of the values are NULL.
- `skewed`: the same, but the orders of payments follow Zipf's law with exponent 1.1.
- `changelog`: keyed upsert topics; of the changes to each table 60 % are new rows, 30 % updates and 10 % deletes.
- `nexmark`: the tables of `nexmark`.

There are a tenth as many customers as orders. The partition is the order's id modulo four, so that the changes of an
order keep their order in both topics. Values are Avro in Confluent's frame, as registry clients write them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.avro.codec import encode
from rowkind.avro.framing import KEY_HEADER, frame
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from tests.bench.compare.tables import TABLES, Changes

PARTITIONS = 4
Variant = Literal["append", "skewed", "changelog", "nexmark"]
Ids = npt.NDArray[np.int64]

_STATUSES = np.array(["new", "paid", "shipped", "done", "cancelled"])
_METHODS = np.array(["card", "cash", "transfer", "voucher"])
_FIRST_TIME = 1_700_000_000_000
_EXPONENT = 1.1
_TRANSACTION_MS = 900_000


def generate(variant: Variant, orders: int, payments: int, seed: int = 42) -> tuple[Changes, Changes]:
    """Return so many changes of orders and of payments."""
    rng = np.random.default_rng(seed)
    order_ids, orders_deleted = _keys(variant, orders, rng)
    known = int(order_ids.max()) + 1
    if variant != "changelog":
        order_ids = rng.permutation(order_ids)
    customer_of = rng.integers(0, max(1, known // 10), known)
    payment_ids, payments_deleted = _keys(variant, payments, rng)
    # A payment may change in every column except its order, so that its changes stay in one partition.
    order_of = _ranks(known, int(payment_ids.max()) + 1, rng) if variant == "skewed" else None
    if order_of is None:
        order_of = rng.integers(0, known, int(payment_ids.max()) + 1)
    changes_of_orders = {
        "order_id": pa.array(order_ids),
        "customer_id": pa.array(customer_of[order_ids]),
        "amount": _with_nulls(np.round(rng.random(orders) * 1000, 2), rng),
        "status": _with_nulls(_STATUSES[rng.integers(0, len(_STATUSES), orders)], rng),
        "ts": times(np.arange(orders)),
    }
    changes_of_payments = {
        "payment_id": pa.array(payment_ids),
        "order_id": pa.array(order_of[payment_ids]),
        "paid": _with_nulls(rng.random(payments) * 500, rng),
        "method": _with_nulls(_METHODS[rng.integers(0, len(_METHODS), payments)], rng),
        # All different and out of order by up to a second, so that the last by time is rarely the last to arrive.
        "ts": times(np.arange(payments) // 1000 * 1000 + _shuffled(payments, rng)),
    }
    return (
        Changes("orders", changes_of_orders, orders_deleted),
        Changes("payments", changes_of_payments, payments_deleted),
    )


def create_topic(servers: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create an empty topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 4})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def fill(servers: str, registry: FolderRegistry, names: dict[str, str], variant: Variant, *tables: Changes) -> None:
    """Append changes to the topics in one transaction, so that all become visible at once."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "log_level": 4,
            "linger.ms": 50,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 1_000_000,
            "transactional.id": f"fill-{'-'.join(names.values())}",
            "transaction.timeout.ms": _TRANSACTION_MS,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    for changes in tables:
        topic = names[changes.table]
        for number, (key, value, headers, partition) in enumerate(records(registry, topic, variant, changes)):
            producer.produce(topic, value, key, partition, headers=headers)
            if number % 10_000 == 0:
                producer.poll(0)
                while len(producer) > 500_000:
                    producer.poll(0.1)
    producer.commit_transaction()


Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None, int]


def records(registry: FolderRegistry, topic: str, variant: Variant, changes: Changes) -> Iterator[Sent]:
    """Yield key, value, headers and partition of every record.

    The keys of upsert topics are Avro without a frame; a tombstone's header names their schema. Both systems can read
    them.
    """
    record = Record.of(TABLES[changes.table].columns, name=changes.table)
    values = frame(registry.register(f"{topic}-value", record), encode(record, changes.columns)).to_pylist()
    partitions = (changes.columns[TABLES[changes.table].partition].to_numpy() % PARTITIONS).tolist()
    if variant != "changelog":
        for value, partition in zip(values, partitions, strict=True):
            yield None, value, None, partition
        return
    key = record.select([changes.key])
    keys = encode(key, {changes.key: changes.columns[changes.key]}).to_pylist()
    headers = [(KEY_HEADER, struct.pack(">bI", 0, registry.register(f"{topic}-key", key)))]
    for each, value, partition, deleted in zip(keys, values, partitions, changes.deleted.tolist(), strict=True):
        yield (each, None, headers, partition) if deleted else (each, value, None, partition)


def _keys(variant: Variant, count: int, rng: np.random.Generator) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return the primary key of each change, and whether it is a delete; changes refer to rows before them."""
    if variant != "changelog":
        return np.arange(count), np.zeros(count, np.bool_)
    drawn = rng.random(count)
    new = drawn < 0.6
    new[0] = True
    before = np.cumsum(new)
    ids = np.where(new, before - 1, (rng.random(count) * before).astype(np.int64))
    return ids, (drawn >= 0.9) & ~new


def _ranks(known: int, count: int, rng: np.random.Generator) -> Ids:
    """Return ids by Zipf's law, with a random id for each rank."""
    weights = np.cumsum(np.arange(1, known + 1, dtype=np.float64) ** -_EXPONENT)
    ranks = np.searchsorted(weights, rng.random(count) * weights[-1])
    return rng.permutation(known)[ranks]


def _with_nulls(values: npt.NDArray[np.generic], rng: np.random.Generator) -> pa.Array:
    return pa.array(values, mask=rng.random(len(values)) < 0.01)


def _shuffled(count: int, rng: np.random.Generator) -> Ids:
    """Return 0 to 999 in random order for every thousand."""
    return np.argsort(rng.random((-(-count // 1000), 1000)), axis=1).ravel()[:count]


def times(milliseconds: Ids) -> pa.Array:
    """Return timestamps at these offsets from the first event."""
    return pa.array(_FIRST_TIME + milliseconds).cast(pa.timestamp("ms", "UTC"))
