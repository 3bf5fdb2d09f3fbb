"""Tables and topics for the tests of the reader and the writer: schemas, records, and complete reads without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from rowkind.avro import codec
from rowkind.avro.framing import frame
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.kafka.planning import Planner
from rowkind.service.kafka.reading import LabelledBlock, Reading
from rowkind.service.kafka.spec import SourceSpec
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.graph import Exit, GraphScan
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.source_table import SourceTable

ORDERS = Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DECIMAL(10,2)"}, name="Order")
ORDER_KEY = Record.of({"id": "BIGINT NOT NULL"}, name="OrderKey")

Row = Mapping[str, Any]


def settings(broker: Broker) -> dict[str, str]:
    """Return librdkafka settings for the test broker, without log output."""
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}


def column(record: Record, name: str) -> Expression:
    """Return a bare column as an expression."""
    return Expression(sql=f'"{name}"', type=record.type(name), columns=(name,), text=name, column=name)


def pass_on(record: Record, key: Sequence[str] = ("id",), side: int = 0) -> Calc:
    """Return a calc that passes rows on unchanged, keyed by the given columns."""
    parts = tuple(column(record, name) for name in key)
    return Calc(
        record,
        record,
        tuple(column(record, name) for name in record.names),
        Key(parts, (True,) * len(parts)),
        side=side,
    )


def scan(topic: str, **changed: Any) -> PhysicalScan:
    """Return a scan of a retract table of orders over a topic; `changed` replaces settings."""
    record = changed.pop("record", ORDERS)
    calc = changed.pop("calc", pass_on(record))
    settings: dict[str, Any] = {"table": "orders", "mode": "retract", "declared": record, "primary_key": ("id",)}
    return PhysicalScan("scan", SourceTable(topic=topic, **(settings | changed)), calc)


def way(from_: PhysicalScan, to: int = 0, level: int = 1) -> Exit:
    """Return the shuffled exit of a scan to a consumer."""
    return Exit(from_.node, from_.calc, to, level, False, from_.traits)


def read_once(*scans: PhysicalScan) -> tuple[GraphScan, ...]:
    """Return one graph scan per table, with an exit to the first consumer for each of its scans."""
    tables: dict[str, list[PhysicalScan]] = {}
    for each in scans:
        tables.setdefault(each.source.table, []).append(each)
    return tuple(GraphScan(of[0], tuple(map(way, of))) for of in tables.values())


def packed(record: Record, rows: Iterable[Row]) -> list[bytes]:
    """Encode rows as Avro, without framing."""
    rows = list(rows)
    columns = {each.name: pa.array([row[each.name] for row in rows], each.type.arrow) for each in record.fields}
    return codec.encode(record, columns, len(rows)).to_pylist()


def unpacked(record: Record, payload: pa.BinaryArray) -> list[Row]:
    """Decode rows to plain values."""
    decoded = codec.read(record, payload)
    columns = {name: decoded.column(name).to_pylist() for name in record.names}
    return [{name: columns[name][i] for name in record.names} for i in range(len(payload))]


@dataclass
class Topic:
    """A topic of orders, with everything that a test needs to write to it."""

    name: str
    broker: Broker
    registry: FolderRegistry
    record: Record = ORDERS
    header: str = "op"
    id: int = field(init=False)
    key_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.registry.register(f"{self.name}-value", self.record)
        self.key_id = self.registry.register(f"{self.name}-key", ORDER_KEY)

    def value(self, row: Row) -> bytes:
        """Return a row as a producer writes it."""
        return frame(self.id, pa.array(packed(self.record, [row]), pa.binary()))[0].as_py()

    def key(self, number: int) -> bytes:
        """Return a key as a producer writes it."""
        return frame(self.key_id, pa.array(packed(ORDER_KEY, [{"id": number}]), pa.binary()))[0].as_py()

    def send(self, *records: tuple[Any, ...], partition: int = 0, producer: Producer | None = None) -> None:
        """Send records: (kind, row), or (headers, value, key) to set every byte."""
        own = producer or Producer(settings(self.broker))
        for record in records:
            if len(record) == 2:
                kind, row = record
                own.produce(self.name, self.value(row), self.key(row["id"]), partition, headers=[(self.header, kind)])
            else:
                headers, value, key = record
                own.produce(self.name, value, key, partition, headers=headers)
        if producer is None:
            assert own.flush(20) == 0

    def spec(self, *scans: PhysicalScan, **changed: Any) -> SourceSpec:
        """Return a source over some scans, or over the retract table of this topic."""
        given = {"kafka": settings(self.broker), "registry": self.registry, "tolerate": True}
        return SourceSpec(read_once(*(scans or (scan(self.name),))), **(given | changed))


def order(number: int, name: str | None = "n", amount: str | None = None) -> Row:
    """Return an order."""
    from decimal import Decimal  # noqa: PLC0415 - only here

    return {"id": number, "name": name, "amount": None if amount is None else Decimal(amount)}


def planner(spec: SourceSpec, clock: Callable[[], float] | None = None) -> Planner:
    """Return the driver's part of a source.

    Each look at the clock is 100 s later, so its view of the topics is always new.
    """
    ticks = iter(range(10**9))
    return Planner(spec, Cluster(spec.kafka), clock or (lambda: 100.0 * next(ticks)))


@dataclass
class Result:
    """The result of a read: changes, dead letters, counters, and the blocks of changes as they came."""

    changes: Changes
    letters: list[DeadLetter]
    counters: dict[str, float]
    blocks: list[LabelledBlock]

    def rows(self, record: Record = ORDERS) -> list[tuple[str, Row]]:
        """Return row kind and row, by seq."""
        rows = unpacked(record, self.changes.payload)
        numbered = zip(self.changes.seq.tolist(), self.changes.kind.tolist(), rows, strict=True)
        return [(SYMBOLS[kind], row) for _, kind, row in sorted(numbered, key=lambda item: item[0])]

    def ids(self) -> list[int]:
        """Return the ids of the rows, by seq."""
        return [row["id"] for _, row in self.rows()]


def read(spec: SourceSpec, ranges: Iterable[Sequence[Range]], *, opens: bool = False) -> Result:
    """Read ranges as the tasks of one batch do; `opens` is passed to the first task."""
    reading = Reading(spec)
    try:
        blocks = [
            block for number, task in enumerate(ranges) for block in reading.blocks(task, opens=opens and number == 0)
        ]
    finally:
        reading.close()
    counters: dict[str, float] = {}
    for label, level, block in blocks:
        if block.counters:
            assert (label, level, len(block.changes)) == (spec.labels[0], spec.writer, 0)
        for name, value in block.counters.items():
            counters[name] = counters.get(name, 0) + value
    everything = Batch.concat([block.batch for _, _, block in blocks])
    letters = [DeadLetter.from_bytes(payload) for payload in everything.letters.to_pylist()]
    return Result(everything.changes, letters, counters, [each for each in blocks if not each[2].counters])


def read_all(spec: SourceSpec, start: Offset | None = None) -> Result:
    """Read one batch without a limit from `start`, or from the source's beginning."""
    plan = planner(spec)
    begin = start or plan.initial()
    end = plan.end(begin, None)
    return read(spec, plan.tasks(begin, end))


def registry(path: Path) -> FolderRegistry:
    """Return a schema registry in a folder."""
    return FolderRegistry(path)
