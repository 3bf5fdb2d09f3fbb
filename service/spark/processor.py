"""One stateful processor for every stage: blocks of one shard in, blocks for the shards of deeper stages out.

Per batch and shard: blocks for a deeper level go on as they are. Those for this one are joined into one batch of
changes. Member by member, each after those that feed it, the operator runs over its arrangements, and what it emits
goes out by its exits: to another member, or to deeper levels and the writer, split by shard and cut into blocks.
Counters and dead letters go straight to the writer.

The class and everything that it holds are pickled by module name, so all of it must be importable in a worker.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from rowkind.operators.arrangement.arrangement import StateSize, kept
from rowkind.operators.arrangement.store import MANIFEST
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Block, Changes, TimeMarks
from rowkind.operators.errors import RowFailed
from rowkind.operators.operator import Output
from rowkind.service.execute import watermarks
from rowkind.service.execute.blocks import Tally
from rowkind.service.execute.failures import LeftOut, OnFailure, failed_in_operator, misfits
from rowkind.service.execute.members import Member, addressed, arrangement, dead_letters
from rowkind.service.execute.promises import OnBroken, broken
from rowkind.service.execute.route import Part, deliver, leave, pieces
from rowkind.service.execute.watermarks import Passing, Watermarks, passing
from rowkind.service.metrics import add
from rowkind.service.spark.cache import DEFAULT_LIMITS, CacheLimits, worker_cache
from rowkind.service.spark.collector import freeze_what_stays, give_back
from rowkind.service.spark.edge import EDGE_SCHEMA
from rowkind.service.spark.errors import UnmatchedRetractionError
from rowkind.service.spark.store import SparkStore, open_map


def over_shards(blocks: DataFrame, processor: OperatorProcessor) -> DataFrame:
    """The blocks that the processor makes of these.

    In its time mode Spark would set up timers in every task that nobody uses, 7 ms each.
    """
    return blocks.groupBy("shard").transformWithState(processor, EDGE_SCHEMA, "Append", "None")


class OperatorProcessor(StatefulProcessor):
    """Runs the members of a level over the shard that Spark groups by.

    Args:
        members: the operators, each before those that it feeds. There may be none: all goes on then, also what is for
            the writer, whose level this may be, where a checkpoint has more stages than the graph is deep.
        level: theirs. `writer`: that of the writer.
        labels: Spark's label of each shard (`placement`).
        unmatched: what becomes of a retraction that finds no row. It is counted in any case.
        promises: what becomes of a change that a table's promises do not allow. It is counted in any case.
        excused: rows that may be left out where an expression fails on them (`service.execute.failures`).
        limits: of the run cache.
        write: takes what a task has for the writer, at the task's end, and the time of the batch; without, it goes on
            as rows.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        level: int,
        writer: int,
        labels: Sequence[int],
        unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore",
        promises: OnBroken = "warn",
        excused: AbstractSet[str] = frozenset(),
        limits: CacheLimits = DEFAULT_LIMITS,
        write: Callable[[Sequence[pa.Buffer], int], None] | None = None,
    ) -> None:
        if unmatched == "dead_letter":
            assert all(member.wrap is not None for member in members), "dead letters need something that makes them"
        self._members = tuple(members)
        self._level = level
        self._writer = writer
        self._labels = tuple(labels)
        self._unmatched = unmatched
        self._promises = promises
        self._excused = excused
        self._limits = limits
        self._write = write
        self._blocks: list[pa.Buffer] = []
        self._now = 0
        self._clocks = tuple(dict.fromkeys(member.clock for member in members if member.clock is not None))
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
        own: list[Block] = []
        for row in rows:
            self._now = row.now
            if self._members and row.level == self._level:
                own.append(Block.from_bytes(row.block))
            else:
                yield from self._out(row.shard, row.level, row.block)
        for shard, level, block in self.apply(key[0] % len(self._labels), own, self._now) if own else ():
            yield from self._out(self._labels[shard], level, block.to_bytes())

    def _out(self, label: int, level: int, block: bytes) -> Iterator[Row]:
        """A block as a row, unless this task writes it."""
        if self._write is None:
            yield Row(shard=label, level=level, block=block, now=self._now)
        else:
            assert level == self._writer, "nothing but the writer is deeper than the level that writes"
            self._blocks.append(pa.py_buffer(block))

    def close(self) -> None:
        """Write; Spark calls this at the end of every task, before it commits the state.

        Should that fail, the task is done again, on the state before it, and finds that all is written.
        """
        if self._write is not None and self._blocks:
            self._write(self._blocks, self._now)
            self._blocks.clear()
        give_back()

    def apply(self, shard: int, blocks: list[Block], now: int) -> Iterator[tuple[int, int, Block]]:
        """The blocks that one batch of a shard gives, each with the shard and the level that it goes to.

        One carries the counters to the writer.
        """
        counters: dict[str, float] = {}
        for to, level, piece in pieces(self._run(shard, blocks, now, counters)):
            yield to, level, Block(piece)
        yield shard, self._writer, Block(Changes.empty(), counters)

    def _run(self, shard: int, blocks: list[Block], now: int, counters: dict[str, float]) -> Iterator[Part]:
        """What leaves the stage; the list of blocks is empty afterwards."""
        changes = Changes.concat([block.changes for block in blocks])
        reports = any(block.reports for block in blocks)
        worker_cache(self._limits).forget_removed()
        before, after = self._pass_time(shard, [block.marks for block in blocks if block.marks], now, counters)
        blocks.clear()
        inbox: dict[int, list[Changes]] = defaultdict(list)
        for member in self._members:
            own = Changes.concat([addressed(changes, member.place), *inbox.pop(member.place, ())])
            tally = Tally(member.sink, member.node)
            if not len(own) and member.always_runs != shard and not member.waits:
                if reports:
                    tally.set_state(shard, self._kept(member))
                    add(counters, tally.counters)
                continue
            if member.delete_times is not None:
                own = member.delete_times(own, before)
            time_ = Passing(now, now) if member.clock is None else passing(before, after, member.clock)
            late = np.zeros(len(own), np.bool_) if member.lateness is None else member.lateness(own, time_.before)
            if late.any():
                tally.add_late(int(late.sum()))
                if member.tell is not None:
                    yield shard, self._writer, dead_letters(member.tell(own.filter(late), time_.before))
                own = own.filter(~late)
            output = self._process(member, shard, own, member.moment(time_), tally)
            if member.waits and member.clock is not None:
                tally.set_due(shard, after.due_ms(member.clock, output.due))
            started = time.perf_counter()
            left_out: list[LeftOut] = []
            of = f"{member.sink}.{member.node}"
            failure = OnFailure(of, left_out.append, self._excused, tables=member.tables)
            misfits(output.failed, member.misfit, member.on_error, failure)
            for way in member.exits:
                result = leave(way, output.rows, failure)
                if way.level == self._level:
                    inbox[way.to].append(result)
                else:
                    yield from deliver(way, result, len(self._labels), shard)
            tally.add_seconds("calc", time.perf_counter() - started)
            tally.add_failed(sum(len(each.reasons) for each in left_out))
            add(counters, tally.counters)
            yield shard, self._writer, self._letters(member, output.unmatched)
            if member.explain is not None:
                yield from ((shard, self._writer, dead_letters(member.explain(each))) for each in left_out)

    def _pass_time(
        self, shard: int, marks: Sequence[TimeMarks], now: int, counters: dict[str, float]
    ) -> tuple[Watermarks, Watermarks]:
        """The watermarks before the batch and after it, kept with the state of the shard."""
        if not self._clocks:
            return Watermarks(), Watermarks()
        assert self._map is not None, "Spark has called `init`"
        store = SparkStore(self._map, watermarks.STATE, worker_cache(self._limits))
        before = Watermarks.from_blob(store.get(MANIFEST))
        after = before.moved(marks, now, self._clocks)
        store.put(MANIFEST, after.to_blob())
        if shard == 0:
            add(counters, after.gauges(now))
        return before, after

    def _process(self, member: Member, shard: int, changes: Changes, now: int, tally: Tally) -> Output:
        """What a member makes of changes; what it does is counted."""
        cache = worker_cache(self._limits)
        assert self._map is not None, "Spark has called `init`"
        stores = {name: SparkStore(self._map, state, cache) for name, state in member.arrangements.items()}
        tally.add_rows_in(changes.kind)
        started = time.perf_counter()
        try:
            output = member.operator.process(changes, stores, now)
        except RowFailed as error:
            of = OnFailure(f"{member.sink}.{member.node}", tables=member.tables)
            raise failed_in_operator(error, of) from None
        processed = time.perf_counter()
        state = sum(store.seconds for store in stores.values())
        tally.add_seconds("state", state)
        tally.add_seconds("operator", processed - started - state)
        tally.add_rows_out(output.rows.kind)
        tally.set_state(shard, output.state)
        tally.add_merged(output.merged_rows)
        tally.add_unmatched(len(output.unmatched))
        tally.add_expired(output.expired)
        for each in broken(output, member.sources):
            if self._promises == "fail":
                raise each.error
            tally.add_broken(each)
        return output

    def _kept(self, member: Member) -> StateSize:
        """How much state a member has in this shard."""
        assert self._map is not None, "Spark has called `init`"
        cache = worker_cache(self._limits)
        names = [arrangement(member.state, name) for name in member.operator.arrangements]
        return sum((kept(SparkStore(self._map, name, cache), name) for name in names), StateSize())

    def _letters(self, member: Member, lost: Changes) -> Changes:
        """What the policy makes of unmatched retractions."""
        if not len(lost):
            return lost
        if self._unmatched == "fail":
            first = int(lost.seq.argmin())
            place = ArrivalNumber.of(int(lost.seq[first]))
            raise UnmatchedRetractionError(
                f"{member.sink}, {member.node}: {len(lost)} retraction(s) of one batch found no row to take back, and "
                f"the job says `unmatched: fail`. The first is a {RowKind(int(lost.kind[first])).symbol} from "
                f"{member.sides[int(lost.side[first])]}, offset {place.offset} of partition {place.partition}. Either "
                "mend the source (does it retract rows it never sent, or rows older than the TTL?), or set "
                "`unmatched: dead_letter` or `ignore`."
            )
        if self._unmatched == "ignore" or member.wrap is None:
            return Changes.empty()
        return dead_letters(member.wrap(lost))
