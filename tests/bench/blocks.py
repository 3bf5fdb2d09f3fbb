"""A source of blocks and an operator that only stores them, for benchmarks of everything around an operator.

They have their own module because workers import objects that they receive by the name of their module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore, digest
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.operator import Output
from rowkind.service.spark.edge import EDGE_SCHEMA, edge_rows
from rowkind.service.spark.placement import placement
from tests.spark.running import LEVEL


@cache
def block(rows: int) -> bytes:
    """Return a block of changes of about 100 bytes each, with text payloads that compress like real text."""
    numbers = np.random.default_rng(7).integers(0, 1 << 40, rows)
    key = pa.array([int(number).to_bytes(9, "big") for number in numbers], pa.binary())
    payload = pa.array(
        [b"order %013d, customer %08d, 17 items, paid" % (n, n % 99_999_989) for n in numbers], pa.binary()
    )
    zeros = np.zeros(rows, np.int8)
    changes = Changes(zeros, zeros, numbers.astype(np.uint64), key, key, numbers, payload)
    return Block(Batch(changes)).to_bytes()


class BlockSource(DataSource):
    """A source of blocks of `rows` changes for each of `shards` shards, `batches` times without a pause."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name in a query."""
        return "blocks"

    def schema(self) -> str:
        """Return the columns of every edge."""
        return EDGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the reader of one query."""
        assert schema.names == ["shard", "level", "block", "now"]
        return BlockReader(*(int(self.options[option]) for option in ("rows", "shards", "batches")))


@dataclass
class Shard(InputPartition):
    """A task that reads the block of one shard."""

    label: int


@dataclass
class BlockReader(DataSourceStreamReader):
    """A reader that counts batches on the driver and makes blocks in the workers."""

    rows: int
    shards: int
    batches: int
    batch: int = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return the offset before the first batch."""
        return {"batch": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return one batch more than before, up to `batches`."""
        self.batch = min(self.batch + 1, self.batches)
        return {"batch": self.batch}

    def partitions(self, *_: Any) -> Sequence[InputPartition]:
        """Return one task per shard."""
        return [Shard(label) for label in placement(self.shards)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the block of a shard, which is made once per worker."""
        assert isinstance(partition, Shard)
        yield edge_rows([(partition.label, LEVEL, block(self.rows))], 0)


@dataclass(frozen=True)
class Keep:
    """Store the batch's rows as one blob, read the blob before it, and drop the blob of `kept` batches ago."""

    kept: int = 8

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """Return the one arrangement."""
        return {"rows": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Store a blob, read one, and drop one."""
        changes, store = batch.changes, stores["rows"]
        manifest = store.get(MANIFEST)
        names = manifest.to_pybytes().decode().split() if manifest else []
        if names:
            assert store.get(names[-1]) is not None
        sink = pa.BufferOutputStream()
        columns = pa.record_batch({"key": changes.key, "payload": changes.payload, "seq": pa.array(changes.seq)})
        with pa.ipc.new_stream(sink, columns.schema.with_metadata({"now": f"{now} {names}"})) as stream:
            stream.write_batch(columns)
        blob = sink.getvalue()
        names.append(digest(blob))
        store.put(names[-1], blob)
        if len(names) > self.kept:
            store.delete(names.pop(0), blob.size)
        store.put(MANIFEST, pa.py_buffer(" ".join(names).encode()))
        return Output(Emitted(Rows.empty()), Changes.empty(), StateSize(len(changes), blob.size, len(names)))
