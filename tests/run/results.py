"""Read a result topic as a strict consumer does: read committed, and check every change against all earlier ones.

A change that was written twice, or not at all, is detected at once. A retraction must match a row that exists, an
insertion must not find its row already there, and an upsert must change something.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from fastavro import parse_schema, schemaless_reader

from rowkind.avro.registry import FolderRegistry

Values = tuple[Any, ...]


class Topics(Protocol):
    """What the reader needs to know of result topics: their servers, names and schemas."""

    servers: str
    registry: FolderRegistry

    def topic(self, name: str) -> str:
        """The topic of a sink."""


class Results:
    """The rows that a topic stands for, by key or as a multiset, and the flaws found while reading.

    A topic with keys, in retract or upsert mode, has at most one row per key at any time.
    """

    def __init__(self, shop: Topics, name: str) -> None:
        self.topic = shop.topic(name)
        self.flaws: list[str] = []
        self.kinds: Counter[str] = Counter()
        self._live: dict[Hashable, Counter[Values]] = defaultdict(Counter)
        self._registry = shop.registry
        self._schemas: dict[int, Any] = {}
        self._servers = shop.servers
        self._next: dict[int, int] = {}
        self._connect()

    def _connect(self) -> None:
        """Create new clients, because a client that went through an outage may be stuck permanently."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": "results",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._uncommitted = Consumer({**settings, "isolation.level": "read_uncommitted"})

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        self._uncommitted.close()

    @property
    def open(self) -> bool:
        """Whether a transaction is open on the topic, so that a read-committed consumer cannot get past it."""
        at = [TopicPartition(self.topic, partition) for partition in self._next]
        clients = self._consumer, self._uncommitted
        try:
            committed, everything = ([each.get_watermark_offsets(of, 10)[1] for of in at] for each in clients)
        except KafkaException:
            self._connect()
            return True
        return committed != everything

    def rows(self) -> Counter[Values]:
        """Read to the end of the committed records, and return the rows that the topic stands for now."""
        try:
            partitions = self._consumer.list_topics(self.topic, 10).topics[self.topic].partitions
        except KafkaException:
            partitions = {}
            self._connect()
        for partition in sorted(partitions):
            self._read(partition)
        return self.live

    @property
    def live(self) -> Counter[Values]:
        """The rows that the topic stands for, as far as it has been read."""
        return sum((rows for rows in self._live.values()), Counter())

    def _read(self, partition: int) -> None:
        self._consumer.assign([TopicPartition(self.topic, partition, self._next.setdefault(partition, 0))])
        while True:
            message = self._consumer.poll(30)
            assert message is not None, f"nothing came from {self.topic}"
            if error := message.error():
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            self.apply(message)
            self._next[partition] = message.offset() + 1

    def apply(self, message: Message) -> None:
        """Apply a message to the rows, and note a flaw if it does not fit."""
        key, raw = message.key(), message.value()
        value = None if raw is None else self._row(raw)
        live = self._live[key]
        headers = dict(message.headers() or ())
        kind = headers["op"].decode() if "op" in headers else "delete" if value is None else "upsert"
        self.kinds[kind] += 1
        flaw = _flaw(kind, key is not None, live, value)
        if flaw:
            self.flaws.append(f"{message.partition()}:{message.offset()} {kind} {value}: {flaw}")
        if kind in ("delete", "upsert"):
            live.clear()
        if value is not None:
            live[value] += -1 if kind in ("-U", "-D") else 1
            if not live[value]:
                del live[value]

    def _row(self, value: bytes) -> Values:
        assert value[0] == 0, "a value is in Confluent's framing"
        number = int.from_bytes(value[1:5], "big")
        if number not in self._schemas:
            self._schemas[number] = parse_schema(json.loads(self._registry.schema_by_id(number).to_json()))
        row: Any = schemaless_reader(io.BytesIO(value[5:]), self._schemas[number], None)
        return tuple(row.values())


def _flaw(kind: str, keyed: bool, live: Counter[Values], value: Values | None) -> str | None:
    """Return the flaw of a change, or None. `live` are the rows of its key, or all rows of a topic without keys."""
    match kind:
        case "-U" | "-D" if not live[value]:
            return f"takes back a row that is not there; there is {list(+live)}"
        case "+I" | "+U" if keyed and +live:
            return f"its key is there already, as {list(+live)}"
        case "upsert" if live[value]:
            return "says what was said before"
        case "delete" if not +live:
            return "deletes what is not there"
    return None
