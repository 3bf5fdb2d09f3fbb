from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from rowkind.service.spark.placement import partition, placement


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_shards_are_spread_evenly_over_partitions(shards: int, partitions: int) -> None:
    """No partition has more than one shard more than another, and each label says which shard it is."""
    labels = placement(shards, partitions)
    counts = Counter(partition(label, partitions) for label in labels)
    assert max(counts.values()) - min(counts[p] for p in range(min(partitions, shards))) <= 1
    assert [label % shards for label in labels] == list(range(shards))
    assert len(set(labels)) == shards


def test_labels_never_change() -> None:
    """The labels of existing checkpoints are what they were."""
    assert placement(2, 2) == [2, 1]
    assert placement(8, 4) == [56, 9, 2, 3, 12, 29, 22, 7]


@pytest.mark.spark
def test_partitions_are_those_of_spark(spark: SparkSession) -> None:
    """Spark's own hash of an int sends every label to the partition that ours names."""
    rows = spark.sql("SELECT int(id) AS label, pmod(hash(int(id)), 7) AS partition FROM range(-5, 2000)").collect()
    assert [row.partition for row in rows] == [partition(row.label, 7) for row in rows]
