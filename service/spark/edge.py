"""The rows between Spark's stages: each a block, where it is to go, and how deep that is.

Arrow is loaded with the first rows, for Spark's short-lived processes that only ask for the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

EDGE_SCHEMA = "shard int, level int, block binary"
"""The columns of every edge: the label of the shard that a block is for, the level, and the block."""


def edge_rows(rows: Iterable[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """The rows of an edge, in the columns of `EDGE_SCHEMA`."""
    import pyarrow as pa  # noqa: PLC0415 -- see the module's docstring

    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = {"shard": pa.int32(), "level": pa.int32(), "block": pa.binary()}
    return pa.record_batch(
        [pa.array(column, type_) for column, type_ in zip(columns, types.values(), strict=True)], names=list(types)
    )
