"""CPU time of the Kafka client, with records as columns and one at a time: `python -m tests.bench.client`.

The topic has four partitions. Each record has a value of 40 bytes, a key of 8 bytes and a row kind header. Records are
written in one transaction and read as a job reads them. The four runs take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.operators.columns.changes import constant
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import client_columns
from rowkind.service.kafka.clients import KafkaSettings, transactional_settings
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record_builder import push
from tests.bench.compare import page
from tests.bench.compare.page import Table
from tests.run.process import until

_PARTITIONS = 4
_WORDS = (b"+I", b"-U", b"+U", b"-D")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.client", description="CPU time of the Kafka client.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    given = parser.parse_args()
    found: dict[str, list[float]] = {"read": [], "write, one transaction": []}
    with Broker() as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        for as_columns in (True, False):
            topic = f"as-columns-{as_columns}".lower()
            admin = AdminClient(kafka)
            admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result()
            with _library(as_columns=as_columns):
                found["write, one transaction"].append(_written(kafka, topic, given.records, as_columns=as_columns))
                found["read"].append(_read(kafka, topic, given.records))
    rows = [[name, *(f"{each:.2f}" for each in (*both, both[1] / both[0]))] for name, both in found.items()]
    head = ["", "as columns, CPU s/M", "one at a time, CPU s/M", "ratio"]
    table = Table("The Kafka client", head, rows, f"{given.records:,} records. {page.machine()}.")
    print(table.text())
    if given.write:
        page.write("client", [table])
    return 0


@contextmanager
def _library(*, as_columns: bool) -> Iterator[None]:
    if as_columns:
        assert client_columns.is_compiled(), "Rowkind was installed without a C compiler"
        yield
    else:
        with patch.object(client_columns, "_library", lambda: None):
            yield


def _written(kafka: KafkaSettings, topic: str, records: int, *, as_columns: bool) -> float:
    """Write the records. Return the CPU seconds per million of them."""
    values = constant(b"\7" * 40, records)
    keys = pa.array([number.to_bytes(8, "big") for number in range(records)], pa.binary())
    kinds, parts = (np.arange(records) % 4).astype(np.int8), (np.arange(records) % _PARTITIONS).astype(np.int32)
    producer: Any = Producer(transactional_settings(kafka, topic, 60_000))
    producer.init_transactions(30)
    producer.begin_transaction()

    def write() -> None:
        if as_columns:
            client_columns.produce(producer, topic, values, keys, parts, ("op", _WORDS, kinds))
        else:
            headers: list[Any] = [[("op", word)] for word in _WORDS]
            columns = zip(values.to_pylist(), keys.to_pylist(), parts.tolist(), kinds.tolist(), strict=True)
            for value, key, part, kind in columns:
                push(producer, topic, value, key, part, None, None, 0, headers[kind])
        producer.commit_transaction(60)

    return _cpu(write) * 1e6 / records


def _read(kafka: KafkaSettings, topic: str, records: int) -> float:
    """Read the records. Return the CPU seconds per million of them."""
    fetcher = Fetcher(kafka)
    ends = [records // _PARTITIONS + 1] * _PARTITIONS
    # A partition's end has the transaction's marker a moment after the commit.
    until(lambda: [fetcher.watermarks(topic, part)[1] for part in range(_PARTITIONS)] == ends, "the end of the commit")
    ranges = [Range(topic, part, 0, end) for part, end in enumerate(ends)]
    found: list[int] = []

    def read() -> None:
        found.extend(len(part) for chunk in fetcher.fetch(ranges, {topic: "fail"}) for part in chunk)

    cpu = _cpu(read)
    fetcher.close()
    assert sum(found) == records, "every record is read once"
    return cpu * 1e6 / records


def _cpu(run: Callable[[], None]) -> float:
    """Return the CPU seconds of this process while it runs, those of librdkafka's threads included."""
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    raise SystemExit(main())
