"""Reports of how many of Spark's tasks are done, while a caller waits for them."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from rowkind.service.spark.stage_tasks import tasks_told

pytestmark = pytest.mark.spark


def test_tasks_are_told_as_they_are_done(spark: SparkSession) -> None:
    """The number of done tasks never falls, and the total may include a task of another query."""
    told: list[tuple[int, int]] = []
    with tasks_told(spark, lambda done, total: told.append((done, total))):
        spark.sparkContext.parallelize(range(6), 6).foreach(lambda _: time.sleep(0.8))
    assert all(total >= 6 for _, total in told)
    assert told == sorted(told)
    assert any(0 < done < total for done, total in told)
