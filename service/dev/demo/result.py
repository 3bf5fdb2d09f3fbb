"""The demo's results as a consumer sees them: folded from the sink topics, and checked against DuckDB."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from fastavro import parse_schema, schemaless_reader

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.demo.data import Event, Row, TableName

RowValues = tuple[Any, ...]

_TYPES = {
    "orders": pa.schema(
        [
            ("order_id", pa.int64()),
            ("customer", pa.string()),
            ("amount", pa.decimal128(10, 2)),
            ("status", pa.string()),
            ("placed", pa.timestamp("us", "UTC")),
        ]
    ),
    "payments": pa.schema(
        [
            ("payment_id", pa.int64()),
            ("order_id", pa.int64()),
            ("paid", pa.decimal128(10, 2)),
            ("method", pa.string()),
        ]
    ),
}
_KEYS: Mapping[TableName, str] = {"orders": "order_id", "payments": "payment_id"}


class ResultTopic:
    """A retract or upsert topic, read with `read_committed` and folded into the rows it represents.

    `rows` is a multiset: the count of each row. In a correct result every count is positive. `columns` are the column
    names; they are empty until the first row has arrived.
    """

    def __init__(self, bootstrap_servers: str, topic: str, registry: FolderRegistry) -> None:
        self.topic = topic
        self.columns: tuple[str, ...] = ()
        self.rows: Counter[RowValues] = Counter()
        self.kinds: Counter[str] = Counter()
        self.latest: dict[RowValues, None] = {}
        self._by_key: dict[bytes, RowValues] = {}
        self._registry = registry
        self._schemas: dict[int, Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"demo-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> int:
        """Fold the messages that have arrived, and return how many there were."""
        messages = self._consumer.consume(10_000, 0.1)
        for message in messages:
            if error := message.error():
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise KafkaException(error)
            self._fold(message)
        return len(messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _fold(self, message: Message) -> None:
        headers: dict[str, Any] = dict(message.headers() or ())
        value = self._read(message.value())
        if "op" in headers:
            kind = headers["op"].decode()
            self.kinds[kind] += 1
            assert value is not None, "a retract topic has a row in every message"
            self._add(value, 1 if kind in {"+I", "+U"} else -1)
            return
        key = message.key()
        assert isinstance(key, bytes), "an upsert topic has a key in every message"
        old = self._by_key.pop(key, None)
        self.kinds["delete" if value is None else "upsert"] += 1
        if old is not None:
            self._add(old, -1)
        if value is not None:
            self._by_key[key] = value
            self._add(value, 1)

    def _add(self, row: RowValues, times: int) -> None:
        self.rows[row] += times
        if self.rows[row] == 0:
            del self.rows[row]
            self.latest.pop(row, None)
        elif times > 0:
            self.latest.pop(row, None)
            self.latest[row] = None

    def _read(self, value: Any) -> RowValues | None:
        if value is None:
            return None
        schema_id = int.from_bytes(value[1:5], "big")
        if schema_id not in self._schemas:
            self._schemas[schema_id] = parse_schema(json.loads(self._registry.schema_by_id(schema_id).to_json()))
        row: Any = schemaless_reader(io.BytesIO(value[5:]), self._schemas[schema_id], None)
        self.columns = tuple(row)
        return tuple(row.values())


def expected(events: list[Event], sql: str) -> Counter[RowValues]:
    """Return the multiset of rows that `sql` returns in DuckDB over the tables that result from `events`."""
    tables: dict[TableName, dict[int, Row]] = {"orders": {}, "payments": {}}
    for event in events:
        key = event.row[_KEYS[event.table]]
        if event.kind.symbol in {"+I", "+U"}:
            tables[event.table][key] = event.row
        else:
            del tables[event.table][key]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, pa.Table.from_pylist(list(rows.values()), _TYPES[name]))
        return Counter(tuple(row) for row in connection.execute(sql).fetchall())


def picture(topics: Sequence[ResultTopic], most: int) -> list[str]:
    """Return lines that show the results: rows and changes of each topic, and the latest rows of the first topic.

    They fit a terminal of 80 columns while there are fewer than a million changes of a kind.
    """
    if not any(topic.kinds for topic in topics):
        return ["no results yet: the first batch is running"]
    lines = []
    for topic in topics:
        kinds = "  ".join(f"{kind} {count:,}" for kind, count in sorted(topic.kinds.items()))
        rows = "1 row" if topic.rows.total() == 1 else f"{topic.rows.total():,} rows"
        lines.append(f"{topic.topic}: {rows} from {kinds or 'no changes'}")
    latest = [[cell(value) for value in row] for row in reversed(list(topics[0].latest)[-most:])]
    table = [topics[0].columns, *latest] if latest else []
    return [*lines, "", *("  " + "".join(f"{each:<11}" for each in row).rstrip() for row in table)]


def cell(value: Any) -> str:
    """Format a value for the demo's table."""
    match value:
        case None:
            return "-"
        case Decimal():
            return f"{value:.2f}"
        case datetime():
            return f"{value:%d %b %H:%M:%S}"
        case _:
            return str(value)
