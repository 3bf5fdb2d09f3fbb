"""What Spark tells of batches, however many of them end between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.run.supervisor import progress_since
from tests.run.process import until

pytestmark = pytest.mark.spark


def test_no_batch_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Each is told once, in order, though several end before anybody looks; later the last one again."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        until(lambda: _last(query) >= 3, "batches end")
        first = [each["batchId"] for each in progress_since(query, -1)]
        until(lambda: _last(query) >= first[-1] + 3, "more of them end")
        second = [each["batchId"] for each in progress_since(query, first[-1])]
        assert first + second == list(range(second[-1] + 1))
    finally:
        query.stop()
    last = _last(query)
    assert [each["batchId"] for each in progress_since(query, last)] == [last]


def _last(query: StreamingQuery) -> int:
    """The last batch of which is told."""
    return query.lastProgress["batchId"] if query.lastProgress is not None else -1
