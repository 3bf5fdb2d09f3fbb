# ruff: noqa: N802 - the methods' names are Spark's
"""Spark's view of Kafka: a streaming Python Data Source whose rows are blocks, and one that takes blocks.

The one place that knows both. The source reads and the sink writes by what `service.kafka` says; the sink leaves a
report of every batch on the driver.

Spark makes them anew in one short-lived process after the other that asks them next to nothing, each on the way to the
first row. So a method itself loads what takes its time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.kafka.spec import OPTION, SourceSpec, WriterSpec, from_option
from rowkind.service.spark.collector import freeze_what_stays, give_back
from rowkind.service.spark.edge import EDGE_SCHEMA, edge_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from rowkind.service.kafka.planning import Planner
    from rowkind.service.kafka.progress import BatchPartition
    from rowkind.service.kafka.writing import Counted

SOURCE = "rowkind-kafka"
"""The format's name for `spark.readStream`."""


class KafkaSource(DataSource):
    """Topics as blocks. Its one option is `spec.OPTION`, a `SourceSpec`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE

    def schema(self) -> str:
        """The columns of every edge."""
        return EDGE_SCHEMA

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: ARG002 - Spark's interface
        """The reader."""
        return KafkaStreamReader(self.options[OPTION])


@dataclass
class ReadTask(InputPartition):
    """The ranges that one task reads; `opens` says that it lets operators begin that need no rows."""

    ranges: tuple[Range, ...]
    opens: bool


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver and reads ranges in the workers, where it arrives pickled."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._start: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return self._planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The job's rows per batch."""
        return ReadMaxRows(self._spec.rows_per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, or `start` where there is nothing new."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._start = Offset.from_json(start)
        end = self._planner.end(self._start, rows)
        return start if end is self._start else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present ends and no further."""
        self._planner.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends as last seen, from which the lag follows."""
        latest = self._planner.latest(self._start)
        return latest.to_json() if latest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The read tasks of a batch."""
        begin = Offset.from_json(start)
        tasks = self._planner.tasks(begin, Offset.from_json(end))
        opens = self._planner.opens_with(begin)
        return [ReadTask(ranges, opens and number == 0) for number, ranges in enumerate(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The blocks of one task, as they are made."""
        from rowkind.service.kafka.reading import worker_reading  # noqa: PLC0415 -- see the module's docstring

        assert isinstance(partition, ReadTask), "partitions are this reader's own"
        freeze_what_stays("read")
        for label, level, block in worker_reading(self._option).blocks(partition.ranges, opens=partition.opens):
            yield edge_rows([(label, level, block.to_bytes())])
        give_back()

    @cached_property
    def _spec(self) -> SourceSpec:
        spec = from_option({OPTION: self._option})
        assert isinstance(spec, SourceSpec), "the option holds a source's spec"
        return spec

    @cached_property
    def _planner(self) -> Planner:
        from rowkind.service.kafka.cluster import Cluster  # noqa: PLC0415 -- see the module's docstring
        from rowkind.service.kafka.planning import Planner  # noqa: PLC0415 -- as above

        return Planner(self._spec, Cluster(self._spec.kafka))

    def __reduce__(self) -> tuple[type[KafkaStreamReader], tuple[str]]:
        return type(self), (self._option,)


SINK = "rowkind-kafka-sink"
"""The format's name for `writeStream`."""


class KafkaSink(DataSource):
    """Blocks to topics. Its one option is `spec.OPTION`, a `WriterSpec`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SINK

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: ARG002 - Spark's
        """The writer."""
        freeze_what_stays("plan")
        spec = from_option(self.options)
        assert isinstance(spec, WriterSpec), "the option holds a writer's spec"
        return KafkaStreamWriter(spec)


@dataclass
class Written(WriterCommitMessage):
    """What a task counted."""

    counted: Counted


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes one task's blocks; on the driver, reports the batch."""

    def __init__(self, spec: WriterSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Net the blocks and write them, exactly once or at least once as each sink says. Raises a ChangelogError."""
        from rowkind.service.kafka.writer_process import write_there  # noqa: PLC0415 -- see the module's docstring
        from rowkind.service.kafka.writing import write  # noqa: PLC0415 -- as above

        freeze_what_stays("write")
        blocks = [value.as_buffer() for batch in iterator for value in batch.column("block")]
        write_them = write_there if self._spec.transactions else write
        counted = write_them(self._spec, _batch_partition(), blocks)
        blocks.clear()
        give_back()
        return Written(counted)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report the batch, on the driver."""
        from rowkind.service.metrics import add  # noqa: PLC0415 -- see the module's docstring

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
        from rowkind.service.metrics import add  # noqa: PLC0415 -- see the module's docstring

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


def _batch_partition() -> BatchPartition:
    """What this write task is. Spark gives a streaming sink no batch number, but these local properties have it."""
    from rowkind.service.kafka.progress import BatchPartition  # noqa: PLC0415 -- see the module's docstring

    context = TaskContext.get()
    assert context is not None, "a task is asked"
    batch = context.getLocalProperty("streaming.sql.batchId")
    checkpoint = context.getLocalProperty("sql.streaming.queryId")
    assert batch is not None, "a streaming task has a batch number"
    assert checkpoint is not None, "a streaming task has a query id"
    return BatchPartition(checkpoint, int(batch), context.partitionId())
