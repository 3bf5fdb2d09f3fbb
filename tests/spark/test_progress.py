"""Spark's progress reports of batches, however many batches end between two checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.run.running_query import progress_since
from tests.run.process import until

pytestmark = pytest.mark.spark


def test_no_batch_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch is reported once and in order, even if several have ended; the last one can be read again."""
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


def test_what_finds_nothing_to_do_after_its_batches_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """After a restart with nothing to do, Spark reports an empty batch, so that the job need not wait for one."""
    (tmp_path / "rows").mkdir()

    def started() -> StreamingQuery:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "rows"))
        return rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    for row in ("a", "b", "c"):
        (tmp_path / "rows" / row).write_text(row)
    query = started()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    query = started()
    try:
        until(lambda: progress_since(query, -1), "a word of it")
        (told,) = progress_since(query, -1)
        assert told["batchId"] == 3
        assert "addBatch" not in told["durationMs"]
    finally:
        query.stop()


def _last(query: StreamingQuery) -> int:
    """Return the number of the last reported batch; -1 if there is none."""
    return query.lastProgress["batchId"] if query.lastProgress is not None else -1
