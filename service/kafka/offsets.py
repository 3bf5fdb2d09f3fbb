"""A source's offsets as Spark logs them, with the limits of batches and their division into read tasks.

The end of a batch records everything that the batch depends on: its number, its time, and where it begins. Where a
batch begins may depend on the clock or on the topics: a start from latest or from a timestamp, a new partition, a reset
after lost offsets. A batch that is read again therefore has exactly the same result (`service.checkpoint.replay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

_BATCH = ""
"""The JSON key for data that does not belong to a topic. No topic can have this name."""

At = tuple[str, int]
"""A topic's name and a partition number."""


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition from offset `start` up to, but not including, `end`; offsets may have gaps.

    `epoch`: the leader epoch when the records before `start` were read, -1 if it is not known (`Offset.epochs`).
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int = -1

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Offset:
    """A position in all partitions of a source's topics.

    - `at`: the next offset to read, by topic and partition.
    - `ids`: Kafka's id of each topic, which shows whether a topic was deleted and re-created.
    - `epochs`: the leader epoch of each partition when it was read up to `at`. The epoch lets a broker check whether
      the partition still has the records that were read (KIP-320).

    Only for the end of a batch:

    - `begin`: where the batch begins.
    - `number`: the number of the batch, counted from 0, under which its results are written. It is -1 before the first
      batch and in the logs of earlier releases.
    - `now`: the time of the batch, which is when it was planned, Unix time in ms.
    """

    at: Mapping[At, int]
    ids: Mapping[str, str]
    begin: Mapping[At, int] = field(default_factory=dict)
    number: int = -1
    now: int = 0
    epochs: Mapping[At, int] = field(default_factory=dict)

    def is_cut_as(self, other: Offset) -> bool:
        """Return whether the batches that end here and at `other` have the same records."""
        return (self.at, self.begin) == (other.at, other.begin)

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark logs."""
        topics: dict[str, Any] = {name: {"id": self.ids[name], "at": {}} for name in sorted(self.ids)}
        for (topic, partition), offset in sorted(self.at.items()):
            topics[topic]["at"][str(partition)] = offset
        for (topic, partition), offset in sorted(self.begin.items()):
            topics[topic].setdefault("from", {})[str(partition)] = offset
        for (topic, partition), epoch in sorted(self.epochs.items()):
            topics[topic].setdefault("epochs", {})[str(partition)] = epoch
        return topics | ({_BATCH: {"at": {}, "number": self.number, "now": self.now}} if self.number >= 0 else {})

    @classmethod
    def from_json(cls, topics: Mapping[str, Any]) -> Self:
        """Restore the offset that `to_json` wrote."""
        at = {(name, int(number)): int(o) for name, topic in topics.items() for number, o in topic["at"].items()}
        begin = {
            (name, int(number)): int(o) for name, topic in topics.items() for number, o in topic.get("from", {}).items()
        }
        epochs = {
            (name, int(number)): int(e)
            for name, topic in topics.items()
            for number, e in topic.get("epochs", {}).items()
        }
        ids = {name: topic["id"] for name, topic in topics.items() if name != _BATCH}
        batch = topics.get(_BATCH, {})
        return cls(at, ids, begin, batch.get("number", -1), batch.get("now", 0), epochs)


def admit(begin: Mapping[At, int], end: Mapping[At, int], rows: int) -> dict[At, int]:
    """Return the end of a batch of at most `rows` rows. Every partition advances in proportion to its lag.

    A partition that lags advances by at least 1 row. The batch may therefore exceed `rows`, but by less than the number
    of partitions.
    """
    behind = {at: stop - begin.get(at, 0) for at, stop in end.items()}
    total = sum(behind.values())
    if total <= rows:
        return dict(end)
    return {
        at: begin.get(at, 0) + (min(count, max(1, count * rows // total)) if count > 0 else 0)
        for at, count in behind.items()
    }


def divide(
    begin: Mapping[At, int],
    end: Mapping[At, int],
    tasks: int,
    rows_per_task: int,
    *,
    whole: bool = False,
    epochs: Mapping[At, int] | None = None,
) -> list[tuple[Range, ...]]:
    """Divide a batch into at most `tasks` read tasks of equal size, and return the ranges of each.

    A task gets at least `rows_per_task` rows, so small batches have few tasks. Large partitions are split, because any
    task may read any row. If `whole` is set, no partition is split. `epochs`: the leader epochs of the records before
    `begin`.
    """
    known = epochs or {}
    ranges = [
        Range(*at, begin.get(at, 0), stop, known.get(at, -1))
        for at, stop in sorted(end.items())
        if stop > begin.get(at, 0)
    ]
    total = sum(len(part) for part in ranges)
    count = min(tasks, -(-total // rows_per_task))
    if whole:
        return _shared_out(ranges, count)
    return _cut(ranges, -(-total // count)) if count else []


def _shared_out(ranges: Sequence[Range], count: int) -> list[tuple[Range, ...]]:
    """Assign whole ranges to `count` tasks, the largest first, each to the task with the fewest rows."""
    tasks: list[list[Range]] = [[] for _ in range(min(count, len(ranges)))]
    for part in sorted(ranges, key=len, reverse=True):
        min(tasks, key=lambda task: sum(map(len, task))).append(part)
    return [tuple(task) for task in tasks]


def _cut(ranges: Sequence[Range], size: int) -> list[tuple[Range, ...]]:
    tasks: list[tuple[Range, ...]] = []
    task: list[Range] = []
    room = size
    for part in ranges:
        start = part.start
        while start < part.end:
            stop = min(part.end, start + room)
            # The leader epoch is known only for the records before the range's beginning.
            task.append(Range(part.topic, part.partition, start, stop, part.epoch if start == part.start else -1))
            room -= stop - start
            start = stop
            if not room:
                tasks.append(tuple(task))
                task, room = [], size
    return [*tasks, tuple(task)] if task else tasks
