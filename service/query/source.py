# ruff: noqa: N802 - the methods' names are Spark's
"""Spark's view of the topics that a query reads: a streaming Python Data Source whose rows are blocks.

`service.kafka` reads the topics. Before the first row, Spark creates the source in several short-lived processes, one
after the other. Each process needs only a small part of the source, so slow imports are inside the methods that need
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.kafka.spec import OPTION, SourceSpec, from_option
from rowkind.service.spark.edge import EDGE_SCHEMA, edge_rows
from rowkind.service.spark.worker_memory import freeze_long_lived_objects, release_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa

    from rowkind.service.kafka.planning import Planner

SOURCE = "rowkind-kafka"
"""The format name for `spark.readStream`."""


class KafkaSource(DataSource):
    """A data source that reads topics as blocks. Its only option is `spec.OPTION`, an encoded `SourceSpec`."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return SOURCE

    def schema(self) -> StructType:
        """Return the columns that the rows of every edge have."""
        return EDGE_SCHEMA

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: ARG002 - Spark's interface
        """Return the reader."""
        return KafkaStreamReader(self.options[OPTION])


@dataclass
class ReadTask(InputPartition):
    """The ranges that one task reads in a batch. `extent`: the batch's end, an `Offset` as JSON; `now`: its time.

    The `first` task of a batch also starts operators that need no rows (`opens`), and asks operators to report their
    state sizes (`reports`).
    """

    ranges: tuple[Range, ...]
    extent: str
    now: int
    first: bool = False
    opens: bool = False
    reports: bool = False


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads ranges in workers, to which it is sent pickled."""

    def __init__(self, option: str) -> None:
        self._option = option

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a query without a checkpoint begins."""
        return self._planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the job's maximum number of rows per batch."""
        return ReadMaxRows(self._spec.rows_per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or `start` if there is nothing new."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = Offset.from_json(start)
        end = self._planner.end(begin, rows)
        return start if end is begin else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit reading to the topics' current ends."""
        self._planner.stop_at_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the read tasks of a batch."""
        begin, until, planner = Offset.from_json(start), Offset.from_json(end), self._planner
        first, *others = (ReadTask(ranges, json.dumps(end), until.now) for ranges in planner.tasks(begin, until))
        first = replace(first, first=True, opens=planner.opens_with(begin), reports=planner.begins_run())
        return [first, *others]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of one task as they are produced."""
        from rowkind.service.kafka.reading import worker_reading  # noqa: PLC0415 -- see the module's docstring

        assert isinstance(partition, ReadTask), "Spark passes partitions that this reader has returned"
        freeze_long_lived_objects("read")
        reading = worker_reading(self._option)
        blocks = reading.blocks(
            partition.ranges,
            opens=partition.opens,
            extent=partition.extent,
            first=partition.first,
            reports=partition.reports,
        )
        for label, level, block in blocks:
            yield edge_rows([(label, level, block.to_bytes())], partition.now)
        release_freed_memory()

    @cached_property
    def _spec(self) -> SourceSpec:
        return from_option(self._option)

    @cached_property
    def _planner(self) -> Planner:
        from rowkind.service.kafka.planning import Planner  # noqa: PLC0415 -- see the module's docstring
        from rowkind.service.kafka.source_cluster import SourceCluster  # noqa: PLC0415 -- as above

        return Planner(self._spec, SourceCluster(self._spec))

    def __reduce__(self) -> tuple[type[KafkaStreamReader], tuple[str]]:
        return type(self), (self._option,)
