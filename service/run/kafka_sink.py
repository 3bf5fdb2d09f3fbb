"""Spark's view of the writer: a streaming Python Data Source that takes blocks, and leaves a report of every batch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rowkind.service.kafka import batch_partition
from rowkind.service.kafka.spec import SinkSpec, from_option
from rowkind.service.kafka.writer_process import write_there
from rowkind.service.kafka.writing import Counted, write
from rowkind.service.metrics import add
from rowkind.service.spark.collector import freeze_what_stays

SINK = "rowkind-kafka-sink"
"""The format's name for `writeStream`."""


class KafkaSink(DataSource):
    """Blocks to a topic. Its one option is `spec.OPTION`, a `SinkSpec`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SINK

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: ARG002, N802 - Spark's
        """The writer."""
        freeze_what_stays("plan")
        spec = from_option(self.options)
        assert isinstance(spec, SinkSpec), "the option holds a sink's spec"
        return KafkaStreamWriter(spec)


@dataclass
class Written(WriterCommitMessage):
    """What a task counted."""

    counted: Counted


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes one task's blocks; on the driver, reports the batch."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Net the blocks and write them, exactly once or at least once as the sink says. Raises a ChangelogError."""
        freeze_what_stays("write")
        blocks = [value.as_buffer() for batch in iterator for value in batch.column("block")]
        write_them = write_there if self._spec.transactions else write
        return Written(write_them(self._spec, batch_partition.current(), blocks))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report the batch, on the driver."""
        freeze_what_stays("commit")
        counters: dict[str, float] = {}
        for message in messages:
            if isinstance(message, Written):
                add(counters, message.counted.carried)
                add(counters, message.counted.written)
        self._report(f"{batchId}.json", {"batch": batchId, "committed": True, "counters": counters})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report what the tasks that did commit have written: the batch will be done again, and they will skip it.

        What rode along with the blocks will ride along again.
        """
        counters: dict[str, float] = {}
        for message in messages:
            if isinstance(message, Written):
                add(counters, message.counted.written)
        if counters:
            name = f"{batchId}.{time.time_ns()}.aborted.json"
            self._report(name, {"batch": batchId, "committed": False, "counters": counters})

    def _report(self, name: str, report: Mapping[str, object]) -> None:
        """Leave a file that appears whole or not at all."""
        folder = Path(self._spec.report_folder)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(report))
        part.replace(folder / name)
