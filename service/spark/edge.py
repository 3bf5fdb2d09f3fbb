"""The rows between Spark's stages: a block, its shard and level, and the time of its batch.

Arrow is imported with the first rows, because Spark's short-lived processes need only the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

EDGE_SCHEMA = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("level", IntegerType()),
        StructField("block", BinaryType()),
        StructField("now", LongType()),
    ]
)
"""The columns of every edge: the label of the block's shard, the block's level, the block, and the batch time in ms.

The time is planned with the batch (`service.kafka.offsets`) and sent with its rows, so a replay has the same time. The
types are not written as text, because Spark would load its parser of SQL for them.
"""


def edge_rows(rows: Iterable[tuple[int, int, bytes]], now: int) -> pa.RecordBatch:
    """Return the rows of an edge in a batch at time `now`, in the columns of `EDGE_SCHEMA`."""
    import pyarrow as pa  # noqa: PLC0415 -- see the module's docstring

    columns = list(zip(*((*row, now) for row in rows), strict=True)) or [()] * 4
    types = {"shard": pa.int32(), "level": pa.int32(), "block": pa.binary(), "now": pa.int64()}
    return pa.record_batch(
        [pa.array(column, type_) for column, type_ in zip(columns, types.values(), strict=True)], names=list(types)
    )
