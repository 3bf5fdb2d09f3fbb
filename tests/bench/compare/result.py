"""Compare a result topic, folded as any consumer would fold it, with DuckDB's result over the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from confluent_kafka import Consumer, TopicPartition

from rowkind.avro.codec import read
from rowkind.avro.framing import split
from rowkind.avro.schema import Record
from tests.bench.compare.queries import Query
from tests.bench.compare.tables import Changes

_MARGIN, _SHARE = 2e-6, 1e-12
"""How much DOUBLEs may differ: absolutely, and as a share of the value."""

_OPEN = pa.scalar(timedelta(minutes=2))
"""Windows that end this long before the last one are closed, whatever their length."""

_TAKEN_BACK = ([("op", b"-U")], [("op", b"-D")])


def difference(query: Query, expected: pa.Table, got: pa.Table) -> str:
    """Return how `got` is wrong; empty if it is right.

    DOUBLEs may differ a little, because the order of a sum is not determined. The last windows are not compared,
    because they stay open until later rows arrive.
    """
    names = list(query.compared or query.columns)
    if query.closes:
        last = pc.subtract(pc.max(expected[query.closes]), _OPEN)
        expected, got = (table.filter(pc.less(table[query.closes], last)) for table in (expected, got))
    expected, got = (_sorted(table.select(names)) for table in (expected, got))
    if len(expected) != len(got):
        return f"{len(got):,} rows, expected {len(expected):,}"
    for name in names:
        ours, theirs = expected[name], got[name].cast(expected[name].type)
        differs = pc.not_equal(ours, theirs)
        if pa.types.is_floating(ours.type):
            margin = pc.add(_MARGIN, pc.multiply(_SHARE, pc.abs(ours)))
            differs = pc.greater(pc.abs(pc.subtract(ours, theirs)), margin)
        differs = differs.fill_null(fill_value=False)
        differs = pc.or_(differs, pc.xor(expected[name].is_null(), got[name].is_null()))
        if count := pc.sum(differs).as_py():
            return f"{count:,} of {len(got):,} rows differ in {name}"
    return ""


def expect(sql: str, tables: Sequence[Changes], oracle: str = "") -> pa.Table:
    """Return the rows of a query, or of `oracle` if given, over the final state of the changes."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute("SET TimeZone = 'UTC'")
        for changes in tables:
            connection.register(changes.table, _latest(changes))
        if oracle:
            return connection.sql(oracle).to_arrow_table()
        (spelled,) = sqlglot.transpile(sql.replace("PROCTIME()", "arrival"), read="spark", write="duckdb")
        return connection.sql(spelled).to_arrow_table()


def fold(servers: str, topic: str, record: Record, *, framed: bool) -> pa.Table:
    """Return the rows that a topic represents by key; a null value or row kind -U or -D removes the row.

    Records without a key are insert-only rows.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = range(len(consumer.list_topics(topic).topics[topic].partitions))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    rows: dict[bytes, bytes] = {}
    come: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 1.0):
            key, value = message.key(), message.value()
            if message.error():
                ended.add(message.partition())
            elif key is None:
                come.append(value)  # type: ignore[arg-type] # values are bytes
            elif value is None or message.headers() in _TAKEN_BACK:
                rows.pop(key, None)  # type: ignore[call-overload] # keys are bytes
            else:
                rows[key] = value  # type: ignore[index,assignment]
    consumer.close()
    payloads = pa.array([*rows.values(), *come], pa.binary())
    decoded = read(record, split(payloads).payload if framed else payloads)
    assert not decoded.bad.any(), f"{topic}: {decoded.reason(int(np.flatnonzero(decoded.bad)[0]))}"
    return pa.table({name: decoded.column(name) for name in record.names})


def _latest(changes: Changes) -> pa.Table:
    """Return the last row of every key that is not deleted, or without a key all rows; `arrival` is the position."""
    table = pa.table(changes.columns).append_column("arrival", pa.array(np.arange(len(changes))))
    if not changes.key:
        return table
    keys = changes.columns[changes.key].to_numpy()
    reversed_places = np.unique(keys[::-1], return_index=True)[1]
    places = len(keys) - 1 - reversed_places
    places = np.sort(places[~changes.deleted[places]])
    return table.take(pa.array(places))


def _sorted(table: pa.Table) -> pa.Table:
    for at, column in enumerate(table.schema):
        if pa.types.is_floating(column.type):
            digits = pc.round(table[column.name], 6)
            table = table.set_column(at, column.name, digits)
    return table.sort_by([(name, "ascending") for name in table.column_names])
