"""A program that uses Spark as a job does, for the test of its standard error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from rowkind.operators.columns.block import Block
from rowkind.service.spark.placement import placement
from rowkind.service.spark.session import session
from tests.spark.distinct import Distinct, batch_of
from tests.spark.running import Query, alone


def main(folder: Path) -> None:
    """Run a query until it fails, lose the accumulator connection as a stop in the middle of a task does, and stop."""
    spark = session("quiet", master="local[1]", parallelism=1, checkpoint=str(folder))
    processor = alone("distinct", Distinct(), labels=placement(1), unmatched="fail")
    query = Query(spark, folder, processor, shards=1)
    query.add({0: [Block(batch_of(("+I", "a")))]}, {0: [Block(batch_of(("-D", "b")))]})
    try:
        query.run()
    except StreamingQueryException:
        print("failed as it should", file=sys.stderr)
    _lose_accumulators(spark)
    spark.stop()


def _lose_accumulators(spark: SparkSession) -> None:
    """Close the accumulator connection, and return when pyspark has noticed."""
    context: Any = spark.sparkContext
    channel = context._javaAccumulator.getClass().getDeclaredField("socket")
    channel.setAccessible(True)
    channel.get(context._javaAccumulator).close()
    context._accumulatorServer.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
