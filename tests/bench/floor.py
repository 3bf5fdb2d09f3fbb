"""The smallest stateful Python query on Spark with default settings: the minimum cost of any such job.

It has a Python source with two rows, `transformWithState` on RocksDB and a Python sink, and no code of Rowkind. It
prints `first rows` when its first batch is committed, and runs until it is ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

SCHEMA = "shard int, block binary"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 - as readers without limits have it
        return {"rows": 2}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(start["rows"], end["rows"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = [pa.array([partition.value], pa.int32()), pa.array([b"block"], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["shard", "block"])


class Source(DataSource):
    """A source of two rows, once."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "floor-source"

    def schema(self) -> str:
        """Return the columns of an edge."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> _Reader:  # noqa: ARG002, N802 - Spark's interface
        """Return the reader."""
        return _Reader()


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        pass


class Sink(DataSource):
    """A sink that discards rows."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "floor-sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> _Writer:  # noqa: ARG002, N802 - Spark's interface
        """Return the writer."""
        return _Writer()


class _Processor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("state", "name string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's interface
        self._state.updateValue(("a",), (b"x",))
        yield from rows

    def close(self) -> None:
        pass


def main() -> None:
    """Run the query until the process is ended."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Source)
    spark.dataSource.register(Sink)
    grouped = spark.readStream.format(Source.name()).load().groupBy("shard")
    query = (
        grouped.transformWithState(_Processor(), SCHEMA, "Append", "None")
        .writeStream.format(Sink.name())
        .option("checkpointLocation", tempfile.mkdtemp())
        .outputMode("append")
        .start()
    )
    while not query.recentProgress and query.isActive:
        query.awaitTermination(0.1)
    print("first rows", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
