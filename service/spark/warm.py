"""Does work early for which the first batch would otherwise wait, while the driver is still planning that batch.

The first Python task starts the daemon of all workers, and the first task with state unpacks RocksDB's library. Both
together take one second on a core that is otherwise idle.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warm_up(spark: SparkSession) -> None:
    """Start the work without waiting for it."""
    threading.Thread(target=_run, args=(spark,), daemon=True).start()


def _run(spark: SparkSession) -> None:
    try:
        # A task over an RDD needs no plan.
        spark.sparkContext.parallelize([0], 1).map(_same).collect()
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - RocksDB is available only through Spark's gateway
        jvm.org.rocksdb.RocksDB.loadLibrary()
    except Exception:  # noqa: BLE001, S110 - the first batch reports any error, or Spark has been stopped
        pass


def _same(row: int) -> int:
    return row
