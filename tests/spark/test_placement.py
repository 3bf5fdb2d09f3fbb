from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from rowkind.service.spark.placement import one_each, partition, placement, usual


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 16, 100])
def test_every_divisor_of_the_shards_has_even_partitions(shards: int) -> None:
    """Each label identifies its shard, and the labels are spread evenly over the partitions."""
    labels = placement(shards)
    for partitions in (each for each in range(1, shards + 1) if shards % each == 0):
        counts = Counter(partition(label, partitions) for label in labels)
        assert counts == dict.fromkeys(range(partitions), shards // partitions)
        assert sorted(partition(label, partitions) for label in one_each(labels, partitions)) == [*range(partitions)]
    assert [label % shards for label in labels] == list(range(shards))
    assert len(set(labels)) == shards


def test_labels_never_change() -> None:
    """The labels of existing checkpoints must not change."""
    assert placement(2) == (2, 1)
    assert placement(8) == (232, 9, 10, 3, 52, 29, 22, 63)


def test_there_are_more_shards_than_partitions() -> None:
    """The number of shards is a power of two, so that there may be more partitions later."""
    assert [usual(parallelism) for parallelism in (1, 2, 9, 64, 1024)] == [4, 8, 64, 256, 1024]


@pytest.mark.spark
def test_partitions_are_those_of_spark(spark: SparkSession) -> None:
    """Spark's hash of an int sends every label to the partition that Rowkind computes."""
    rows = spark.sql("SELECT int(id) AS label, pmod(hash(int(id)), 7) AS partition FROM range(-5, 2000)").collect()
    assert [row.partition for row in rows] == [partition(row.label, 7) for row in rows]
