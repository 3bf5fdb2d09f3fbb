"""The driver side of a source, which decides where to begin, where each batch ends, and how to handle lost records.

This module is separate from Spark's interface (`service.query.source`), so that tests can exercise each decision
directly.
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
"""The minimum interval between batches without rows, which only advance time."""

_ENDS_ASKED = 3
"""How many more times to request a partition's end if the reported end is before the offset already read."""

_FEW_ROWS = 1_000
"""Record sizes are not checked for at most this many rows, because the check takes as long as a small batch."""

_BATCH_SECONDS = 2.0
_LEAST_ROWS = 200_000
"""The lowest row limit for batches while there is a backlog. The limit rises while batches take less than
`_BATCH_SECONDS`, so that a batch's fixed cost matters little. A higher fixed limit would need too much memory if a join
multiplies rows."""

_BYTES_BESIDE = 100
"""The size in bytes of what a row contains besides its record: hash, key, arrival number, and lengths."""


@dataclass(frozen=True)
class _View:
    """Metadata that is refreshed at intervals: topics, partitions and their earliest offsets."""

    topics: Topics
    earliest: Mapping[At, int]
    until: float


def initial(cluster: Cluster, starts: Mapping[str, Start]) -> Offset:
    """Return the offset at which a source without a checkpoint begins, in all current partitions of its topics.

    Raises ChangelogError.
    """
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
        self._not_before = 0.0
        self._began = False
        self._sizes: dict[str, tuple[float, float]] = {}
        self._paced_rows = _LEAST_ROWS
        self._under_way: tuple[float, int] | None = None

    def initial(self) -> Offset:
        """Return the offset at which a source without a checkpoint begins."""
        return initial(self._cluster, self._starts)

    def end(self, start: Offset, rows: int | None) -> Offset:
        """Return the end of the batch that begins at `start`, or `start` itself if there is nothing new.

        `rows`: the maximum number of rows, None for no limit. A replayed batch ends where it originally ended.
        Raises LostOffsetsError, ReplacedTopicError or MissingTopicError.
        """
        if self._spec.drain_file is not None and Path(self._spec.drain_file).exists():
            return start
        if (again := self._replayed.get(start.number + 1)) is not None:
            return again
        if self._spec.replay_only or self._is_early():
            return start
        end = self._planned(start, rows)
        if end is None:
            return start
        if self._spec.min_interval_ms:
            self._not_before = self._clock() + self._spec.min_interval_ms / 1000
        # Batch times strictly increase, even if the clock is set back, because rows are ordered by processing time.
        return replace(end, number=start.number + 1, now=max(start.now + 1, round(time.time() * 1000)))

    def _is_early(self) -> bool:
        """Return whether the next batch must wait for `min_interval_ms`.

        Nothing waits if the previous batch left records because of its limits, or if the query stops at the topics'
        current ends, where "nothing new" would end it.
        """
        if not self._spec.min_interval_ms or self._under_way is not None or self._target is not None:
            return False
        return self._clock() < self._not_before

    @cached_property
    def _replayed(self) -> Mapping[int, Offset]:
        """The ends of the batches to replay, by batch number."""
        if self._spec.replay_file is None or not Path(self._spec.replay_file).exists():
            return {}
        ends = [Offset.from_json(each) for each in json.loads(Path(self._spec.replay_file).read_text("utf-8"))]
        return {end.number: end for end in ends}

    def _planned(self, start: Offset, rows: int | None) -> Offset | None:
        """Return the end of a new batch, without its number and time, or None if there is nothing new."""
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
        # A reset after a loss must advance the offset even without new records, or the next batch would reset again.
        moved = start.ids != view.topics.ids or any(begin[at] != start.at.get(at, 0) for at in begin)
        if ends == begin and not moved and not self.opens_with(start):
            return replace(start, begin=begin) if self._is_due(start) else None
        end = ends if rows is None else admit(begin, ends, min(rows, self._fitting(begin, ends), self._paced_rows))
        if end != ends:
            self._under_way = self._clock(), sum(end.values()) - sum(begin.values())
        # For a partition without new records, keep the leader epoch of the batch that read it last.
        epochs = {at: start.epochs.get(at, epoch) if end[at] == begin[at] else epoch for at, epoch in epochs.items()}
        return Offset(end, view.topics.ids, begin, epochs=epochs)

    def _check(self, start: Offset, ends: Mapping[At, int]) -> None:
        """Raise TruncatedTopicError or RestartedTopicError if a partition ends before the offset already read."""
        for at, end in ends.items():
            read = start.at.get(at, 0)
            # If the job starts beyond the partition's end, the partition has not been read up to `read`.
            if end >= read or start.number < 0 or read == self._starts[at[0]].offsets.get(at[1]):
                continue
            # A leader that was just elected may not know the partition's end yet.
            again = max(end, *(self._cluster.ends([at])[at] for _ in range(_ENDS_ASKED)))
            if again < read:
                if self._starts[at[0]].on_recreated == "restart":
                    raise RestartedTopicError(at[0], truncated(at[1], read, again))
                raise TruncatedTopicError(*at, read, again)

    def stop_at_now(self) -> None:
        """Limit all further batches to the partitions' current ends."""
        topics = self._look(afresh=True).topics
        now = Offset(self._cluster.ends(topics.partitions), topics.ids)
        self._target = now.at

    def tasks(self, start: Offset, end: Offset) -> list[tuple[Range, ...]]:
        """Return the ranges of each of a batch's read tasks, of which there is at least 1. Raises LostOffsetsError."""
        # A query from which sinks were removed may no longer read all topics of a recorded batch.
        ends = {at: stop for at, stop in end.at.items() if at[0] in self._starts}
        begin = {at: offset for at, offset in (end.begin or start.at).items() if at in ends}
        if any(offset > begin.get(at, 0) for at, offset in ends.items()):
            view = self._look(afresh=True)
            found = self._begin(replace(start, at=begin, ids=end.ids), view)
            for at, wanted in begin.items():
                # A replay without the lost records would produce a different state, so `on_lost` does not apply here.
                if end.number in self._replayed and wanted < min(found[at], ends[at]):
                    raise LostOffsetsError(*at, wanted, found[at])
            begin = found
        # After a loss, the known leader epoch does not belong to the records before the new beginning.
        epochs = {at: epoch for at, epoch in start.epochs.items() if begin.get(at) == start.at.get(at)}
        tasks = divide(
            begin, ends, self._spec.tasks, self._spec.rows_per_task, whole=self._spec.whole_partitions, epochs=epochs
        )
        return tasks or [()]

    def begins_run(self) -> bool:
        """Return whether this is the first call, which means that a run's first batch is being planned."""
        began, self._began = self._began, True
        return not began

    def opens_with(self, start: Offset) -> bool:
        """Return whether the batch at `start` is the source's first batch and is needed even if it has no rows."""
        return bool(self._spec.opens) and not start.begin

    def _is_due(self, start: Offset) -> bool:
        """Return whether a batch without rows is due, either as a run's first batch or to advance time.

        A run's first batch reports the state sizes. The previous batch recorded in `due_file` when the next batch is
        due. If the file does not exist, no batch of this run has recorded it yet, so a batch is due.
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
        """If the row limit cut short the batch that has just ended, adjust the limit to that batch's duration."""
        if self._under_way is not None:
            began, rows = self._under_way
            fits = int(rows * _BATCH_SECONDS / max(self._clock() - began, 0.001))
            # The limit drops by at most half, because a batch may be slow for reasons other than its rows.
            self._paced_rows = max(_LEAST_ROWS, self._paced_rows // 2, min(fits, self._paced_rows * 2))
            self._under_way = None

    def _fitting(self, begin: Mapping[At, int], ends: Mapping[At, int]) -> int:
        """Estimate how many rows between the given offsets fit into `bytes_per_batch`. Return at least 1."""
        behind = {at: end - begin[at] for at, end in ends.items() if end > begin[at]}
        all_rows = sum(behind.values())
        if all_rows <= _FEW_ROWS:
            return max(1, all_rows)
        size = sum((self._record_bytes(at, begin[at], ends[at]) + _BYTES_BESIDE) * rows for at, rows in behind.items())
        return max(1, int(all_rows * self._spec.bytes_per_batch / size))

    def _record_bytes(self, at: At, begin: int, end: int) -> float:
        """Return the mean size of a topic's records in bytes, measured every 30 s while there is a backlog."""
        known = self._sizes.get(at[0])
        if known is None or self._clock() >= known[1]:
            known = self._cluster.record_bytes(*at, begin, end), self._clock() + _SIZES_EVERY_SECONDS
            self._sizes[at[0]] = known
        return known[0]

    def _begin(self, before: Offset, view: _View) -> dict[At, int]:
        """Return the offset at which each partition continues after `before`.

        A new partition begins at its earliest record. If records were lost, `on_lost` decides where to continue.
        Raises LostOffsetsError, ReplacedTopicError or RestartedTopicError.
        """
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
