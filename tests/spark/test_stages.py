"""Plans of several operators in real queries, on RocksDB: fused stages, single shards, broadcasts, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.queries import Shop, everything
from tests.spark.plans import PlanQuery

pytestmark = pytest.mark.spark


def test_a_query_of_every_operator_is_what_sql_says_before_and_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One plan with fused operators, a broadcast, a union, a cross join and a global count, stopped in the middle."""
    shop = Shop("everything on RocksDB")
    query = PlanQuery(spark, tmp_path, everything())

    query.run(*(shop.batch(20) for _ in range(2)))
    assert query.rows == shop.result()

    query.run(*(shop.batch(20) for _ in range(1)))
    assert query.rows == shop.result()
    assert len(query.rows) > 2
