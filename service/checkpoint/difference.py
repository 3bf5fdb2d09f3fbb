"""Writes the difference between result topics and their wanted content, in one transaction.

A query that has filled its state again has written its complete result to a separate topic for each sink. This topic
and the result topic are compared row by row as stored in Kafka, partition by partition. Upsert topics are compared by
each key's last value, all others by the number of times each row occurs. A row that was written with another schema is
converted to the current schema for the comparison, but retracted as it was written. DuckDB sorts and counts, on disk if
memory is short.

Repeating the comparison after a failure is harmless: rows that are already in the topics are no longer part of the
difference.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer

from rowkind.avro.errors import SchemaError, UnknownSchemaError
from rowkind.avro.framing import frame, split
from rowkind.avro.registry import Registry
from rowkind.avro.resolve import resolve
from rowkind.errors import RowkindError
from rowkind.operators.changelog import RowKind
from rowkind.service.kafka.clients import ANSWER_SECONDS, KafkaSettings, servers, transactional_settings
from rowkind.service.kafka.committed_records import committed
from rowkind.service.kafka.errors import AppendOnlyError, UnfitTopicError, translate
from rowkind.service.kafka.headers import Headers, row_kinds
from rowkind.service.kafka.record import Records
from rowkind.service.kafka.record_builder import push
from rowkind.service.kafka.sink_formats import AsAvro
from rowkind.service.kafka.spec import SinkSpec, WriterSpec
from rowkind.service.physical.row_kind import spellings

_TRANSACTION_MS = 900_000
"""The longest transaction that brokers allow by default, 15 minutes."""

_MEMORY = "512MB"
_ROWS = 10_000

_UPSERT = """
    WITH last AS (
        SELECT wanted, partition, key, arg_max({'value': value}, arrived).value AS value
        FROM records WHERE key IS NOT NULL GROUP BY ALL
    ), moved AS (
        SELECT key FROM last WHERE NOT wanted AND value IS NOT NULL GROUP BY key HAVING count(*) > 1
    )
    SELECT partition, key, new.value, NULL AS kind
    FROM (FROM last WHERE NOT wanted AND value IS NOT NULL) old
    FULL JOIN (FROM last WHERE wanted AND value IS NOT NULL) new USING (partition, key)
    WHERE old.value IS DISTINCT FROM new.value OR (new.value IS NOT NULL AND key IN (FROM moved))
    ORDER BY new.value IS NOT NULL
"""
"""If the topic has gained partitions, a key may have rows in two partitions. The row in the wrong partition is deleted
first. The other row is then written again, for consumers that keep rows by key alone.
"""

_SIGNED = """
    WITH difference AS (
        SELECT
            partition, key, value, sum(CASE WHEN wanted THEN sign ELSE -sign END) AS count,
            arg_max(written, arrived) FILTER (NOT wanted) AS written
        FROM records GROUP BY partition, key, value HAVING count <> 0
    ), updates AS (
        SELECT *, key IS NOT NULL AND min(count) OVER same < 0 AND max(count) OVER same > 0 AS replaced
        FROM difference WINDOW same AS (PARTITION BY partition, key)
    )
    SELECT
        partition, key, if(count < 0, coalesce(written, value), value),
        if(count < 0, if(replaced, $before, $delete), if(replaced, $after, $insert)) AS kind
    FROM updates, range(abs(count)::BIGINT) ORDER BY partition, key, count > 0
"""
_KINDS = {
    "before": RowKind.UPDATE_BEFORE,
    "delete": RowKind.DELETE,
    "after": RowKind.UPDATE_AFTER,
    "insert": RowKind.INSERT,
}


@dataclass(frozen=True)
class _Change:
    """A record to be written."""

    partition: int
    key: bytes | None
    value: bytes | None
    kind: int | None


def write_difference(
    spec: WriterSpec, wanted: Mapping[str, str], transactional_id: str, registry: Registry
) -> dict[str, int]:
    """Write to each sink's topic the difference from its `wanted` topic, and return the number of records by sink.

    `wanted` maps sink names to topics. Everything is written in one transaction. No other process may write to the
    sinks' topics at the same time.

    Raises:
        AppendOnlyError: Rows would have to be retracted from an append topic.
        UnfitTopicError: A topic contains records that do not fit its sink.
        ChangelogError: Kafka cannot read or write as required.
    """
    producer: Any = Producer(transactional_settings(spec.kafka, transactional_id, _TRANSACTION_MS))
    written: dict[str, int] = {}
    try:
        producer.init_transactions(2 * ANSWER_SECONDS)
        producer.begin_transaction()
        for sink in spec.sinks.values():
            written[sink.sink] = 0
            headers: list[Any] = [None] * 4
            if sink.row_kind is not None:
                headers = [[(sink.row_kind.header, word)] for word in spellings(sink.row_kind.values)]
            for change in _difference(spec.kafka, sink, wanted[sink.sink], registry):
                header = None if change.kind is None else headers[change.kind]
                push(producer, sink.topic, change.value, change.key, change.partition, headers=header)
                written[sink.sink] += 1
        producer.commit_transaction(_TRANSACTION_MS / 1000)
    except KafkaException as error:
        raise translate(error, servers(spec.kafka), "writing the difference to the result topics") from None
    except RowkindError:
        # Without the abort, readers of the topics would wait until the transaction times out.
        with suppress(KafkaException):
            producer.abort_transaction(ANSWER_SECONDS)
        raise
    return written


def _difference(kafka: KafkaSettings, sink: SinkSpec, wanted: str, registry: Registry) -> Iterator[_Change]:
    """Yield the records that a sink's topic lacks. A key's old rows precede its new rows."""
    with (
        tempfile.TemporaryDirectory(prefix="rowkind-") as folder,
        duckdb.connect(str(Path(folder, "records"))) as found,
    ):
        found.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 1; SET preserve_insertion_order = false")
        found.execute(
            "CREATE TABLE records "
            "(wanted BOOLEAN, partition INTEGER, arrived BIGINT, key BLOB, value BLOB, written BLOB, sign INTEGER)"
        )
        for topic in (sink.topic, wanted):
            for records in committed(kafka, topic):
                _take(found, sink, records, registry, wanted=topic == wanted)
        changes = found.cursor()
        if sink.form == "upsert":
            changes.execute(_UPSERT)
        else:
            changes.execute(_SIGNED, {name: int(kind) for name, kind in _KINDS.items()})
        while rows := changes.fetchmany(_ROWS):
            for row in rows:
                change = _Change(*row)
                if sink.form == "append" and change.kind != RowKind.INSERT:
                    raise AppendOnlyError(
                        f"Sink {sink.sink}: topic {sink.topic} has rows that the query no longer has, but mode append "
                        f"allows insertions only. Write to another topic, or use mode retract or upsert."
                    )
                yield change


def _take(
    found: duckdb.DuckDBPyConnection, sink: SinkSpec, records: Records, registry: Registry, *, wanted: bool
) -> None:
    sign = np.ones(len(records), np.int8)
    strange = records.headers is not None
    if sink.row_kind is not None:
        kinds = row_kinds(records.headers or Headers.none(len(records)), sink.row_kind)
        sign[(kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)] = -1
        strange = bool((kinds < 0).any())
    if strange:
        raise UnfitTopicError(
            f"Topic {sink.topic} has records that sink {sink.sink} does not write in its mode, {sink.form}. If the "
            f"sink had another mode or row kind header before, the topic cannot be updated: write to another topic."
        )
    value = records.value
    if isinstance(sink.value, AsAvro):
        value = _under(sink.value.schema, records.value, registry)
    table = pa.table(
        {
            "partition": pa.array(records.partition, pa.int32()),
            "arrived": pa.array(records.offset),
            "key": records.key,
            "value": value,
            "written": pa.nulls(len(records), pa.binary()) if value is records.value else records.value,
            "sign": pa.array(sign),
        }
    )
    found.register("chunk", table)
    found.execute("INSERT INTO records SELECT ?, partition, arrived, key, value, written, sign FROM chunk", [wanted])
    found.unregister("chunk")


def _under(schema: int, values: pa.BinaryArray, registry: Registry) -> pa.BinaryArray:
    """Return framed values with the given schema. A value with another schema is converted if possible."""
    framed = split(values)
    for number, other in enumerate(framed.schemas):
        if other is None or other == schema:
            continue
        members = np.flatnonzero(framed.schema == number)
        try:
            writer, reader = registry.schema_by_id(other), registry.schema_by_id(schema)
            payload, decoded = resolve(writer, reader, framed.payload.take(pa.array(members)))
        except (SchemaError, UnknownSchemaError):
            continue
        good = np.zeros(len(values), np.bool_)
        good[members[~decoded.bad]] = True
        values = pc.replace_with_mask(values, pa.array(good), frame(schema, payload.filter(pa.array(~decoded.bad))))
    return values
