"""What the first batch would have to wait for, done while the driver still plans it.

The first task in Python starts the daemon of all workers, and the first one with state unpacks RocksDB's library. Both
take a second, of a core that has nothing to do until then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def warm_up(spark: SparkSession) -> None:
    """Begin, and do not wait for the end."""
    threading.Thread(target=_run, args=(spark,), daemon=True).start()


def _run(spark: SparkSession) -> None:
    try:
        spark.range(1, numPartitions=1).mapInArrow(_same, "id long").collect()
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - RocksDB is to be had through Spark's gateway only
        jvm.org.rocksdb.RocksDB.loadLibrary()
    except Exception:  # noqa: BLE001, S110 - whatever is wrong, the first batch says it, or Spark has been stopped
        pass


def _same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows
