"""Spark's view of the writer: a streaming Python Data Source that takes blocks, and leaves a report of every batch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from operators.changes import Block, Changes
from service.kafka import at_least_once, attempt
from service.kafka.outgoing import prepare
from service.kafka.spec import SinkSpec, from_option
from service.kafka.transaction import write_once
from service.metrics import add, sample

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
        spec = from_option(self.options)
        assert isinstance(spec, SinkSpec), "the option holds a sink's spec"
        return KafkaStreamWriter(spec)


@dataclass
class Written(WriterCommitMessage):
    """What a task counted: what rode along with its blocks, and what it wrote itself."""

    carried: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes one task's blocks; on the driver, reports the batch."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Net the blocks and write them, exactly once or at least once as the sink says. Raises a ChangelogError."""
        task = Written()
        with _Stopwatch(task, self._spec.sink, "unpack"):
            blocks = [Block.from_bytes(value.as_buffer()) for batch in iterator for value in batch.column("block")]
            for block in blocks:
                add(task.carried, block.counters)
        with _Stopwatch(task, self._spec.sink, "net"):
            outgoing = prepare(self._spec, Changes.concat([block.changes for block in blocks]))
        if not len(outgoing):
            return task
        with _Stopwatch(task, self._spec.sink, "send"):
            if not self._spec.transactions:
                at_least_once.write(self._spec, outgoing)
                add(task.written, outgoing.counters)
                return task
            outcome, retries = write_once(self._spec, attempt.current(), outgoing)
        transactions = {outcome: 1, "retried": retries}
        for name, count in transactions.items():
            if count:
                add(task.written, {sample("rowkind_transactions_total", sink=self._spec.sink, outcome=name): count})
        if outcome == "committed":
            add(task.written, outgoing.counters)
        return task

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report the batch, on the driver."""
        counters: dict[str, float] = {}
        for message in messages:
            if isinstance(message, Written):
                add(counters, message.carried)
                add(counters, message.written)
        self._report(f"{batchId}.json", {"batch": batchId, "committed": True, "counters": counters})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report what the tasks that did commit have written: the batch will be done again, and they will skip it.

        What rode along with the blocks will ride along again.
        """
        counters: dict[str, float] = {}
        for message in messages:
            if isinstance(message, Written):
                add(counters, message.written)
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


class _Stopwatch:
    """Adds the seconds of a stage to what a task wrote."""

    def __init__(self, task: Written, sink: str, stage: str) -> None:
        self._task = task
        self._name = sample("rowkind_write_seconds_total", sink=sink, stage=stage)

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        add(self._task.written, {self._name: time.perf_counter() - self._started})
