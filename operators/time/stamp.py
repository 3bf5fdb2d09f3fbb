"""Stamp: each row with the time of its batch as a column (SQL's processing time).

The operator stores nothing. So its input must be insert-only: a retraction would need the time with which its row was
emitted. A batch's time is logged before the batch is processed, so a replay produces the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.netting import net_rows
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.operator import Output


@dataclass(frozen=True, slots=True)
class Stamp:
    """The stamp operator.

    `timed` appends a time, in microseconds since the epoch, to each row. Raises `BatchTooLarge`.

    The input is an append-only changelog. A refresh identifies a row by its content. Here the content would have a
    different time, so refreshes are dropped.
    """

    timed: Callable[[pa.BinaryArray, Int64s], pa.BinaryArray]

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """An empty mapping, because nothing is stored."""
        return {}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard; all of its rows arrive at time `now` (ms since the epoch)."""
        del stores
        comes = batch.changes.filter(batch.changes.kind == RowKind.INSERT)
        payload = self.timed(comes.payload, np.full(len(comes), now * 1000))
        strange = batch.changes.filter(batch.changes.kind != RowKind.INSERT)
        return Output(net_rows(payload, comes.seq, comes.weight), strange, StateSize())
