"""The stateful processor that runs every stage: it reads a shard's blocks, and emits blocks for deeper stages.

In each batch of a shard, blocks for a deeper level are passed on unchanged. Blocks for this level are concatenated into
one batch, over which the stage loop (`service.execute.stage`) runs. The output is split by shard and cut into blocks.
Counters and dead letters are sent directly to the writer.

The class and everything that it contains are pickled by module name, so a worker must be able to import all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from rowkind.operators.arrangement.store import MANIFEST
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block, TimeMarks
from rowkind.operators.columns.changes import Changes
from rowkind.quantities import counted
from rowkind.service.execute import watermarks
from rowkind.service.execute.members import Member, addressed
from rowkind.service.execute.metrics import add
from rowkind.service.execute.promises import OnBroken
from rowkind.service.execute.route import Part, deliver, pieces
from rowkind.service.execute.stage import MemberOutput, ShardBatch, run
from rowkind.service.execute.watermarks import Watermarks
from rowkind.service.spark.cache import DEFAULT_LIMITS, CacheLimits, worker_cache
from rowkind.service.spark.edge import EDGE_SCHEMA
from rowkind.service.spark.errors import UnmatchedRetractionError
from rowkind.service.spark.store import SparkState, open_map
from rowkind.service.spark.worker_memory import freeze_long_lived_objects, release_freed_memory


def over_shards(blocks: DataFrame, processor: OperatorProcessor) -> DataFrame:
    """Return the blocks that the processor emits for the given blocks.

    The time mode is "None", because in other modes Spark sets up unused timers in every task, which takes 7 ms each.
    """
    return blocks.groupBy("shard").transformWithState(processor, EDGE_SCHEMA, "Append", "None")


@dataclass(frozen=True)
class Level:
    """A level of a graph.

    - `members`: the level's operators, each before the operators that it feeds. If a checkpoint has more stages than
      the graph has levels, the additional levels have no members and pass everything on. Such a level may even be the
      writer's.
    - `number`: its own number. `writer`: the number of the writer's level.
    - `labels`: Spark's label of each shard (`placement`).
    """

    members: Sequence[Member]
    number: int
    writer: int
    labels: Sequence[int]


class OperatorProcessor(StatefulProcessor):
    """Runs the members of a level over the shard that Spark groups by.

    Args:
        level: the level of the members.
        unmatched: the policy for a retraction that finds no row. Such a retraction is always counted.
        promises: the policy for a change that violates a table's declared constraints. Such a change is always counted.
        limits: the limits of the run cache.
        write: called at a task's end with the blocks for the writer and the time of the batch. If it is None, the
        blocks are passed on as rows.
    """

    def __init__(
        self,
        level: Level,
        *,
        unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore",
        promises: OnBroken = "warn",
        limits: CacheLimits = DEFAULT_LIMITS,
        write: Callable[[Sequence[pa.Buffer], int], None] | None = None,
    ) -> None:
        if unmatched == "dead_letter":
            assert all(each.wrap is not None for each in level.members), (
                "operators that report dead letters can make them"
            )
        self._level = level
        self._unmatched = unmatched
        self._promises = promises
        self._limits = limits
        self._write = write
        self._blocks: list[pa.Buffer] = []
        self._now = 0
        self._clocks = tuple(dict.fromkeys(member.clock for member in level.members if member.clock is not None))
        self._map: MapState | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the stage's map. Spark calls this method at the start of every task."""
        freeze_long_lived_objects("operator")
        self._map = open_map(handle)

    def handleInputRows(  # noqa: N802 -- Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 -- Spark's name
    ) -> Iterator[Row]:
        """Apply one batch of one shard and emit its blocks."""
        own: list[Block] = []
        for row in rows:
            self._now = row.now
            if self._level.members and row.level == self._level.number:
                own.append(Block.from_bytes(row.block))
            else:
                yield from self._out(row.shard, row.level, row.block)
        for shard, level, block in self.apply(key[0] % len(self._level.labels), own, self._now) if own else ():
            yield from self._out(self._level.labels[shard], level, block.to_bytes())

    def _out(self, label: int, level: int, block: bytes) -> Iterator[Row]:
        """Yield a block as a row, or collect it if this task writes it."""
        if self._write is None:
            yield Row(shard=label, level=level, block=block, now=self._now)
        else:
            assert level == self._level.writer, "only the writer is at a deeper level"
            self._blocks.append(pa.py_buffer(block))

    def close(self) -> None:
        """Write the collected blocks. Spark calls this method at the end of every task, before it commits the state.

        If the commit fails, the task is repeated on the previous state, and finds that its output is already written.
        """
        if self._write is not None and self._blocks:
            self._write(self._blocks, self._now)
            self._blocks.clear()
        release_freed_memory()

    def apply(self, shard: int, blocks: list[Block], now: int) -> Iterator[tuple[int, int, Block]]:
        """Yield the output blocks of a shard's batch, each with its target shard and level.

        A last block carries the counters to the writer.
        """
        counters: dict[str, float] = {}
        for to, level, piece in pieces(self._run(shard, blocks, now, counters)):
            yield to, level, Block(piece)
        yield shard, self._level.writer, Block(counters=counters)

    def _run(self, shard: int, blocks: list[Block], now: int, counters: dict[str, float]) -> Iterator[Part]:
        """Yield the stage's output. This method empties the list of blocks."""
        assert self._map is not None, "Spark has called `init`"
        cache = worker_cache(self._limits)
        cache.drop_removed()
        state = SparkState(self._map, cache)
        before, after = self._pass_time([block.marks for block in blocks if block.marks], now, state)
        if shard == 0:
            add(counters, after.gauges(now))
        reports = any(block.reports for block in blocks)
        batch = Batch.concat([block.batch for block in blocks])
        blocks.clear()
        inbox = {member.place: [addressed(batch, member.place)] for member in self._level.members}
        del batch
        for output in run(self._level.members, ShardBatch(shard, now, before, after, inbox, reports), state):
            yield from self._leave(shard, output)
            add(counters, output.tally.counters)

    def _leave(self, shard: int, output: MemberOutput) -> Iterator[Part]:
        """Yield the part of one member's output that leaves the stage: changes and dead letters."""
        member = output.member
        if self._promises == "fail":
            for each in output.broken:
                raise each.error
        if member.tell is not None and len(output.late):
            yield shard, self._level.writer, Batch.of_letters(member.tell(output.late, output.watermark))
        started = time.perf_counter()
        for way, batch in output.sent:
            if way.level != self._level.number:
                yield from deliver(way, batch, len(self._level.labels), shard)
        output.tally.add_seconds("calc", time.perf_counter() - started)
        yield shard, self._level.writer, self._letters(member, output.unmatched)
        if member.explain is not None:
            yield from ((shard, self._level.writer, Batch.of_letters(member.explain(each))) for each in output.left_out)

    def _pass_time(self, marks: Sequence[TimeMarks], now: int, state: SparkState) -> tuple[Watermarks, Watermarks]:
        """Return the watermarks before and after the batch, and store the latter in the shard's state."""
        if not self._clocks:
            return Watermarks(), Watermarks()
        store = state.store(watermarks.STATE)
        before = Watermarks.from_blob(store.get(MANIFEST))
        after = before.moved(marks, now, self._clocks)
        store.put(MANIFEST, after.to_blob())
        return before, after

    def _letters(self, member: Member, lost: Changes) -> Batch:
        """Apply the policy for unmatched retractions. Raises UnmatchedRetractionError if the policy is `fail`."""
        if not len(lost):
            return Batch.empty()
        if self._unmatched == "fail":
            first = int(lost.seq.argmin())
            place = ArrivalNumber.of(int(lost.seq[first]))
            raise UnmatchedRetractionError(
                f"{member.sink}, {member.node}: {counted(len(lost), 'retraction')} of one batch found no row to "
                "retract, and the job has `unmatched: fail`. The first is a "
                f"{RowKind(int(lost.kind[first])).symbol} from {member.sides[int(lost.side[first])]}, "
                f"offset {place.offset} of partition {place.partition}. Either "
                "fix the source (does it retract rows it never sent, or rows older than the TTL?), or set "
                "`unmatched: dead_letter` or `ignore`."
            )
        if self._unmatched == "ignore" or member.wrap is None:
            return Batch.empty()
        return Batch.of_letters(member.wrap(lost))
