"""The driver's half of a source: where it begins, how far each batch goes, and what was lost on the way.

Kept apart from Spark's interface (`service.query.source`), so that every decision can be tested by calling it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rowkind.service.kafka.cluster import Cluster, Topics
from rowkind.service.kafka.errors import (
    LostOffsetsError,
    ReplacedTopicError,
    RestartedTopicError,
    TruncatedTopicError,
    truncated,
)
from rowkind.service.kafka.new_partitions import until_growth
from rowkind.service.kafka.offsets import At, Offset, Range, admit, divide
from rowkind.service.kafka.spec import SourceSpec
from rowkind.service.physical.source_table import Start

_TOPICS_EVERY_SECONDS = 1.0
_SIZES_EVERY_SECONDS = 30.0
_TICKS_EVERY_SECONDS = 1.0
"""How often there may be a batch without rows, for the sake of time."""

_ENDS_ASKED = 3
"""How often an end that lies before what was read is asked for again."""

_FEW_ROWS = 1_000
"""So many rows make a batch without a look at their sizes, which takes as long as a small batch."""

_BATCH_SECONDS = 2.0
_LEAST_ROWS = 200_000
"""A batch of a backlog has so many rows, and more where those are done in less time, going by the batch before: what it
costs in any case is then little of it. One whose rows become many on their way would take too much memory."""

_BYTES_BESIDE = 100
"""What a row has beside its record, in columns: hash, key, arrival number, the lengths of all."""


@dataclass(frozen=True)
class _View:
    """What is looked up once in a while only: topics, partitions and their earliest offsets."""

    topics: Topics
    earliest: Mapping[At, int]
    until: float


def initial(cluster: Cluster, starts: Mapping[str, Start]) -> Offset:
    """Where a source without a checkpoint begins: in the partitions of now of these topics. Raises a ChangelogError."""
    topics = cluster.topics(starts)
    earliest = cluster.earliest(topics.partitions)
    at: dict[At, int] = {}
    for name, start in starts.items():
        partitions = [each for each in topics.partitions if each[0] == name]
        match start.at:
            case "earliest":
                at |= {each: earliest[each] for each in partitions}
            case "latest":
                at |= cluster.ends(partitions)
            case "timestamp":
                assert start.timestamp_ms is not None, "the job's model requires a time"
                at |= cluster.at_time(partitions, start.timestamp_ms)
            case "offsets":
                at |= {each: start.offsets.get(each[1], earliest[each]) for each in partitions}
    return Offset(at, topics.ids)


class Planner:
    """Plans the batches of one source. `clock` is monotonic, in seconds."""

    def __init__(self, spec: SourceSpec, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._cluster = cluster
        self._clock = clock
        self._starts = spec.starts
        self._in_order = sorted({each.scan.source.topic for each in spec.scans if each.scan.source.ordered})
        self._view: _View | None = None
        self._target: Mapping[At, int] | None = None
        self._tick_after = 0.0
        self._began = False
        self._sizes: dict[str, tuple[float, float]] = {}
        self._paced_rows = _LEAST_ROWS
        self._under_way: tuple[float, int] | None = None

    def initial(self) -> Offset:
        """Where a source without a checkpoint begins."""
        return initial(self._cluster, self._starts)

    def end(self, start: Offset, rows: int | None) -> Offset:
        """The end of the batch that begins at `start`, of at most `rows` rows; `start` itself if there is nothing new.

        A batch that is to be replayed is the one that it was. Raises LostOffsetsError, ReplacedTopicError or
        MissingTopicError.
        """
        if self._spec.drain_file is not None and Path(self._spec.drain_file).exists():
            return start
        if (again := self._replayed.get(start.number + 1)) is not None:
            return again
        if self._spec.replay_only:
            return start
        end = self._planned(start, rows)
        if end is None:
            return start
        # No two batches have one time, even if the clock is set back: rows are ordered by the time of processing.
        return replace(end, number=start.number + 1, now=max(start.now + 1, round(time.time() * 1000)))

    @cached_property
    def _replayed(self) -> Mapping[int, Offset]:
        """The batches that are to be replayed, by their numbers."""
        if self._spec.replay_file is None or not Path(self._spec.replay_file).exists():
            return {}
        ends = [Offset.from_json(each) for each in json.loads(Path(self._spec.replay_file).read_text("utf-8"))]
        return {end.number: end for end in ends}

    def _planned(self, start: Offset, rows: int | None) -> Offset | None:
        """The same for a batch that is new, without its number and time; None if there is nothing new."""
        self._pace()
        view = self._look()
        begin = self._begin(start, view)
        ends, epochs = self._cluster.ends_with_epochs(view.topics.partitions)
        self._check(start, ends)
        if self._target is not None:
            ends = {at: min(end, self._target.get(at, 0)) for at, end in ends.items()}
        ends = {at: max(end, begin[at]) for at, end in ends.items()}
        now_ms = round(time.time() * 1000)
        ends = until_growth(self._cluster, self._in_order, begin, ends, earliest=view.earliest, now_ms=now_ms)
        # A reset after a loss moves the offset even where no record comes of it, or the next batch would reset again.
        moved = start.ids != view.topics.ids or any(begin[at] != start.at.get(at, 0) for at in begin)
        if ends == begin and not moved and not self.opens_with(start):
            return replace(start, begin=begin) if self._is_due(start) else None
        end = ends if rows is None else admit(begin, ends, min(rows, self._fitting(begin, ends), self._paced_rows))
        if end != ends:
            self._under_way = self._clock(), sum(end.values()) - sum(begin.values())
        # Of what was read before, the leader of then says more.
        epochs = {at: start.epochs.get(at, epoch) if end[at] == begin[at] else epoch for at, epoch in epochs.items()}
        return Offset(end, view.topics.ids, begin, epochs=epochs)

    def _check(self, start: Offset, ends: Mapping[At, int]) -> None:
        """Make sure that no partition ends before what was read. Raises TruncatedTopicError or RestartedTopicError."""
        for at, end in ends.items():
            read = start.at.get(at, 0)
            # One that begins behind its end has not been read that far.
            if end >= read or start.number < 0 or read == self._starts[at[0]].offsets.get(at[1]):
                continue
            # A leader that has only just been elected may not know its end.
            again = max(end, *(self._cluster.ends([at])[at] for _ in range(_ENDS_ASKED)))
            if again < read:
                if self._starts[at[0]].on_recreated == "restart":
                    raise RestartedTopicError(at[0], truncated(at[1], read, again))
                raise TruncatedTopicError(*at, read, again)

    def stop_at_now(self) -> None:
        """From now on, no batch goes beyond the present ends."""
        topics = self._look(afresh=True).topics
        now = Offset(self._cluster.ends(topics.partitions), topics.ids)
        self._target = now.at

    def tasks(self, start: Offset, end: Offset) -> list[tuple[Range, ...]]:
        """What each read task of a batch reads; there is one at least. Raises LostOffsetsError if records are gone."""
        # A query that has lost sinks may not read all topics of the batch any more.
        ends = {at: stop for at, stop in end.at.items() if at[0] in self._starts}
        begin = {at: offset for at, offset in (end.begin or start.at).items() if at in ends}
        if any(offset > begin.get(at, 0) for at, offset in ends.items()):
            view = self._look(afresh=True)
            found = self._begin(replace(start, at=begin, ids=end.ids), view)
            for at, wanted in begin.items():
                # A replay without them would lead to another state, whatever the job says of new batches.
                if end.number in self._replayed and wanted < min(found[at], ends[at]):
                    raise LostOffsetsError(*at, wanted, found[at])
            begin = found
        # Where records were lost, what lies before the beginning is not what was read.
        epochs = {at: epoch for at, epoch in start.epochs.items() if begin.get(at) == start.at.get(at)}
        tasks = divide(
            begin, ends, self._spec.tasks, self._spec.rows_per_task, whole=self._spec.whole_partitions, epochs=epochs
        )
        return tasks or [()]

    def begins_run(self) -> bool:
        """Whether this is asked for the first time, which is for the first batch of a run."""
        began, self._began = self._began, True
        return not began

    def opens_with(self, start: Offset) -> bool:
        """Whether the batch that begins here is the first one, of a source that has one in any case."""
        return bool(self._spec.opens) and not start.begin

    def _is_due(self, start: Offset) -> bool:
        """Whether a batch without rows is due: the first one of a run, which reports state, or one because of time.

        The last batch has said when the next one is due. If there was none in this run, one is made to find out.
        """
        if self._target is None and self._spec.levels and start.number >= 0 and not self._began:
            return True
        if self._spec.due_file is None or self._target is not None or self._clock() < self._tick_after:
            return False
        with suppress(FileNotFoundError):
            said = Path(self._spec.due_file).read_text("utf-8")
            if not said or float(said) > time.time() * 1000:
                return False
        self._tick_after = self._clock() + _TICKS_EVERY_SECONDS
        return True

    def _pace(self) -> None:
        """Take in how long the last batch took, if there were more rows than it had: until now, when it is over."""
        if self._under_way is not None:
            began, rows = self._under_way
            fits = int(rows * _BATCH_SECONDS / max(self._clock() - began, 0.001))
            # Half of the one before at least: a batch may have waited for something else than its rows.
            self._paced_rows = max(_LEAST_ROWS, self._paced_rows // 2, min(fits, self._paced_rows * 2))
            self._under_way = None

    def _fitting(self, begin: Mapping[At, int], ends: Mapping[At, int]) -> int:
        """About how many of the rows between these offsets a batch can have by their bytes, and one at least."""
        behind = {at: end - begin[at] for at, end in ends.items() if end > begin[at]}
        all_rows = sum(behind.values())
        if all_rows <= _FEW_ROWS:
            return max(1, all_rows)
        size = sum((self._record_bytes(at, begin[at], ends[at]) + _BYTES_BESIDE) * rows for at, rows in behind.items())
        return max(1, int(all_rows * self._spec.bytes_per_batch / size))

    def _record_bytes(self, at: At, begin: int, end: int) -> float:
        """The mean size of a topic's records; it is asked for once in a while, when there is a backlog."""
        known = self._sizes.get(at[0])
        if known is None or self._clock() >= known[1]:
            known = self._cluster.record_bytes(*at, begin, end), self._clock() + _SIZES_EVERY_SECONDS
            self._sizes[at[0]] = known
        return known[0]

    def _begin(self, before: Offset, view: _View) -> dict[At, int]:
        """Where each partition begins after `before`: a new one at its beginning, a lost one where the job says."""
        begin: dict[At, int] = {}
        for at in view.topics.partitions:
            start = self._starts[at[0]]
            if before.ids.get(at[0], view.topics.ids[at[0]]) != view.topics.ids[at[0]]:
                raise (ReplacedTopicError if start.on_recreated == "fail" else RestartedTopicError)(at[0])
            wanted, earliest = before.at.get(at, 0), view.earliest[at]
            lost = wanted < earliest
            if lost and start.on_lost == "fail":
                raise LostOffsetsError(*at, wanted, earliest)
            begin[at] = self._cluster.ends([at])[at] if lost and start.on_lost == "latest" else max(wanted, earliest)
        return begin

    def _look(self, *, afresh: bool = False) -> _View:
        if self._view is None or afresh or self._clock() >= self._view.until:
            topics = self._cluster.topics(self._starts)
            self._view = _View(topics, self._cluster.earliest(topics.partitions), self._clock() + _TOPICS_EVERY_SECONDS)
        return self._view
