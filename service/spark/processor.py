"""One stateful processor for every stage: blocks of one shard in, blocks for the next consumer's shards out.

Per batch and shard: the blocks are joined into one batch of changes, and dead letters are set aside. Member by member,
each after those that feed it, the operator runs over its arrangements, and the calc at its exit sends what came out on
its way: to another member, or out of the stage. What leaves is split by the consumer's shards and cut into blocks.
Counters that rode in go out again with the first block, exactly once, with the members' own added.

The class and everything that it holds are pickled by module name, so all of it must be importable in a worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Block, Changes, Counters, RowKind, constant
from rowkind.service.execute.blocks import Tally, cut
from rowkind.service.execute.members import Member, addressed
from rowkind.service.metrics import add
from rowkind.service.spark.cache import DEFAULT_LIMITS, CacheLimits, worker_cache
from rowkind.service.spark.collector import freeze_what_stays
from rowkind.service.spark.errors import UnmatchedRetractionError
from rowkind.service.spark.store import SparkStore, open_map

EDGE_SCHEMA = "shard int, block binary"
"""The two columns of every edge."""


def over_shards(blocks: DataFrame, processor: OperatorProcessor) -> DataFrame:
    """The blocks that the processor makes of these.

    The time comes in as a column: in a streaming query it is the batch's, which Spark logs with the batch, so that a
    replay sees the same. In its time mode Spark would set up timers in every task that nobody uses, 7 ms each.
    """
    dated = blocks.withColumn("now", F.unix_millis(F.current_timestamp()))
    return dated.groupBy("shard").transformWithState(processor, EDGE_SCHEMA, "Append", "None")


class OperatorProcessor(StatefulProcessor):
    """Runs the members of a stage over the shard that Spark groups by.

    Args:
        members: the operators, each before the one that it feeds; what leaves the stage comes from the last.
        shards: how many shards the stage has; the grouping key is a label of `placement(shards, …)`.
        labels: a label per shard of the consumer; a single one where all goes to one shard or nothing is shuffled.
        unmatched: what becomes of a retraction that finds no row. It is counted in any case.
        limits: of the run cache.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        shards: int,
        labels: Sequence[int],
        unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore",
        limits: CacheLimits = DEFAULT_LIMITS,
    ) -> None:
        if unmatched == "dead_letter":
            assert all(member.wrap is not None for member in members), "dead letters need something that makes them"
        self._members = tuple(members)
        self._shards = shards
        self._labels = tuple(labels)
        self._unmatched = unmatched
        self._limits = limits
        self._map: MapState | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the map of the stage; Spark calls this at the start of every task."""
        freeze_what_stays("operator")
        self._map = open_map(handle)

    def handleInputRows(  # noqa: N802 -- Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 -- Spark's name
    ) -> Iterator[Row]:
        """Apply one batch of one shard and emit its blocks."""
        taken = list(rows)
        blocks = [Block.from_bytes(row.block) for row in taken]
        for shard, block in self.apply(key[0] % self._shards, blocks, taken[0].now):
            yield Row(shard=shard, block=block.to_bytes())

    def apply(self, shard: int, blocks: Sequence[Block], now: int) -> Iterator[tuple[int, Block]]:
        """The blocks that one batch of shard number `shard` gives, each with the label that it goes to.

        There is always one, so that whoever comes after knows that there was a batch.
        """
        counters: dict[str, float] = {}
        for block in blocks:
            add(counters, block.counters)
        leaving = Changes.concat(list(self._run(shard, blocks, now, counters)))
        carried: Mapping[str, float] | None = counters
        for label, part in zip(self._labels, leaving.split(len(self._labels)), strict=True):
            for piece in cut(part):
                yield label, Block(piece, carried or {})
                carried = None
        if carried is not None:
            yield self._labels[shard % len(self._labels)], Block(Changes.empty(), carried)

    def _run(self, shard: int, blocks: Sequence[Block], now: int, counters: dict[str, float]) -> Iterator[Changes]:
        """What leaves the stage."""
        changes = Changes.concat([block.changes for block in blocks])
        dead = changes.kind == RowKind.DEAD_LETTER
        yield changes.filter(dead)
        live = changes.filter(~dead)
        inbox = [[addressed(live, place)] for place in range(len(self._members))]
        for place, member in enumerate(self._members):
            own = Changes.concat(inbox[place])
            if not len(own) and not member.always_runs:
                continue
            result, lost, counted = self._process(place, shard, own, now)
            add(counters, counted)
            if member.feeds is None:
                yield result
            else:
                inbox[member.feeds].append(result)
            yield self._letters(member, lost)

    def _process(self, place: int, shard: int, changes: Changes, now: int) -> tuple[Changes, Changes, Counters]:
        """What a member emits, under its calc; its unmatched retractions; what it counted."""
        member = self._members[place]
        tally = Tally(member.node)
        cache = worker_cache(self._limits)
        assert self._map is not None, "Spark has called `init`"
        stores = {name: SparkStore(self._map, member.arrangement(name), cache) for name in member.operator.arrangements}
        tally.add_rows_in(changes.kind)
        started = time.perf_counter()
        output = member.operator.process(changes, stores, now)
        processed = time.perf_counter()
        result = member.calc(output.rows)
        state = sum(store.seconds for store in stores.values())
        tally.add_seconds("state", state)
        tally.add_seconds("operator", processed - started - state)
        tally.add_seconds("calc", time.perf_counter() - processed)
        tally.add_rows_out(result.kind)
        tally.set_state(shard, output.state)
        tally.add_merged(output.merged_rows)
        tally.add_unmatched(len(output.unmatched))
        tally.add_expired(output.expired)
        return result, output.unmatched, tally.counters

    def _letters(self, member: Member, lost: Changes) -> Changes:
        """What the policy makes of unmatched retractions."""
        if not len(lost):
            return lost
        if self._unmatched == "fail":
            first = int(lost.seq.argmin())
            place = ArrivalNumber.of(int(lost.seq[first]))
            raise UnmatchedRetractionError(
                f"{member.node}: {len(lost)} retraction(s) of one batch found no row to take back, and the job says "
                f"`unmatched: fail`. The first is a {RowKind(int(lost.kind[first])).symbol} from "
                f"{member.sides[int(lost.side[first])]}, offset {place.offset} of partition {place.partition}. Either "
                "mend the source (does it retract rows it never sent, or rows older than the TTL?), or set "
                "`unmatched: dead_letter` or `ignore`."
            )
        if self._unmatched == "ignore" or member.wrap is None:
            return Changes.empty()
        return Changes(
            side=np.zeros(len(lost), np.int8),
            kind=np.full(len(lost), RowKind.DEAD_LETTER, np.int8),
            hash=lost.hash,
            key=pa.nulls(len(lost), pa.binary()),
            sub_key=constant(b"", len(lost)),
            seq=lost.seq,
            payload=member.wrap(lost),
        )
