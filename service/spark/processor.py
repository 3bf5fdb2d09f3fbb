"""One stateful processor for every operator: blocks of one shard in, blocks for the next consumer's shards out.

Per batch and shard: the blocks are joined into one batch of changes, dead letters are set aside, the operator runs
over its arrangements, the calc at its exit sends what came out on its way, and the result is split by the consumer's
shards and cut into blocks. Counters that rode in go out again with the first block, exactly once, with this
operator's own added.

The class and everything that it holds are pickled by module name, so all of it must be importable in a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues

from operators.changes import Block, Changes, RowKind, Rows, binary
from operators.operator import Operator, Output
from service.spark.blocks import Tally, cut
from service.spark.cache import DEFAULT_LIMITS, CacheLimits, worker_cache
from service.spark.errors import UnmatchedRetractionError
from service.spark.store import SparkStore, open_map

EDGE_SCHEMA = "shard int, block binary"
"""The two columns of every edge."""

Calc = Callable[[Rows], Changes]
"""What runs at the exit of the operator: its rows as changes for the consumer."""

Wrap = Callable[[Changes], pa.BinaryArray]
"""The dead letter record of each of these unmatched retractions."""


class OperatorProcessor(StatefulProcessor):
    """Runs an operator over the shard that Spark groups by.

    Args:
        node: the operator's name in the plan, which labels its counters.
        operator: the operator itself.
        calc: what runs at its exit.
        shards: how many shards this operator has; the grouping key is a label of `placement(shards, …)`.
        labels: a label per shard of the consumer; a single one where nothing is shuffled any more.
        unmatched: what becomes of a retraction that finds no row. It is counted in any case.
        wrap: makes the dead letters, where `unmatched` asks for them.
        limits: of the run cache.
    """

    def __init__(
        self,
        node: str,
        operator: Operator,
        calc: Calc,
        *,
        shards: int,
        labels: Sequence[int],
        unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore",
        wrap: Wrap | None = None,
        limits: CacheLimits = DEFAULT_LIMITS,
    ) -> None:
        assert wrap is not None or unmatched != "dead_letter", "dead letters need something that makes them"
        self._node = node
        self._operator = operator
        self._calc = calc
        self._shards = shards
        self._labels = tuple(labels)
        self._unmatched = unmatched
        self._wrap = wrap
        self._limits = limits
        self._maps: Mapping[str, MapState] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open one map per arrangement; Spark calls this at the start of every task."""
        self._maps = {name: open_map(handle, name, ttl) for name, ttl in self._operator.arrangements.items()}

    def handleInputRows(  # noqa: N802 -- Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803 -- Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Apply one batch of one shard and put out its blocks."""
        blocks = [Block.from_bytes(value) for frame in rows for value in frame["block"]]
        for shard, block in self.apply(key[0] % self._shards, blocks, timerValues.getCurrentProcessingTimeInMs()):
            yield pd.DataFrame({"shard": np.array([shard], np.int32), "block": [block.to_bytes()]})

    def apply(self, shard: int, blocks: Sequence[Block], now: int) -> Iterator[tuple[int, Block]]:
        """The blocks that one batch of shard number `shard` gives, each with the label that it goes to."""
        tally = Tally(self._node)
        for block in blocks:
            tally.merge(block.counters)
        changes = Changes.concat([block.changes for block in blocks])
        dead = changes.kind == RowKind.DEAD_LETTER
        out = [changes.filter(dead)]
        if not dead.all():
            out += self._process(shard, changes.filter(~dead), now, tally)
        counters = tally.counters
        for label, part in zip(self._labels, Changes.concat(out).split(len(self._labels)), strict=True):
            for piece in cut(part):
                yield label, Block(piece, counters)
                counters = {}
        if counters:
            yield self._labels[shard % len(self._labels)], Block(Changes.empty(), counters)

    def _process(self, shard: int, changes: Changes, now: int, tally: Tally) -> list[Changes]:
        cache = worker_cache(self._limits)
        stores = {name: SparkStore(state, cache) for name, state in self._maps.items()}
        tally.add_rows_in(changes.kind)
        started = time.perf_counter()
        output = self._operator.process(changes, stores, now)
        processed = time.perf_counter()
        result = self._calc(output.rows)
        state = sum(store.seconds for store in stores.values())
        tally.add_seconds("state", state)
        tally.add_seconds("operator", processed - started - state)
        tally.add_seconds("calc", time.perf_counter() - processed)
        tally.add_rows_out(result.kind)
        tally.set_state(shard, output.state)
        tally.add_merged(output.merged_rows)
        tally.add_unmatched(len(output.unmatched))
        return [result, self._dead_letters(output)] if len(output.unmatched) else [result]

    def _dead_letters(self, output: Output) -> Changes:
        """What the policy makes of the unmatched retractions."""
        lost = output.unmatched
        if self._unmatched == "fail":
            first = int(lost.seq.argmin())
            seq = int(lost.seq[first])
            raise UnmatchedRetractionError(
                f"{self._node}: {len(lost)} retraction(s) of one batch found no row to take back, and the job says "
                f"`unmatched: fail`. The first is a {RowKind(int(lost.kind[first])).symbol} on the "
                f"{'right' if lost.side[first] else 'left'} input, from offset {seq >> 16} of partition "
                f"{seq & 0xFFFF}. Either mend the source (does it retract rows it never sent, or rows older than the "
                "TTL?), or set `unmatched: dead_letter` or `ignore`."
            )
        if self._wrap is None:
            return Changes.empty()
        return Changes(
            side=np.zeros(len(lost), np.int8),
            kind=np.full(len(lost), RowKind.DEAD_LETTER, np.int8),
            hash=lost.hash,
            key=pa.nulls(len(lost), pa.binary()),
            sub=binary([b""] * len(lost)),
            seq=lost.seq,
            payload=self._wrap(lost),
        )
