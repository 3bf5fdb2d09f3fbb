"""Offsets of one source as Spark logs them, and the arithmetic on them: admission and division into read tasks.

The end of a batch says all that the batch depends on: its number, its time, and where it begins, even if that was
decided by the clock or by the state of the topics (a start from latest or from a timestamp, a new partition, a reset
after lost offsets). A batch that is read again then computes exactly the same (`service.checkpoint.replay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

_BATCH = ""
"""The name under which the JSON has what is not of a topic; no topic has this name."""

At = tuple[str, int]
"""A topic's name and a partition number."""


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition from `start` to before `end`; offsets may have gaps.

    `epoch`: the leader's when the records before `start` were read, -1 if it is not known (`Offset.epochs`).
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
    - `ids`: Kafka's id of each topic, by which a topic that was deleted and made anew is known.
    - `begin`: of the end of a batch, where the batch begins.
    - `number`: of the end of a batch, its number. Batches count from 0 and are written under this number. -1 before the
      first batch, and in what an earlier release logged.
    - `now`: of the end of a batch, its time: when it was planned, Unix time in ms.
    - `epochs`: the number of the leader that each partition had when it was read up to `at`. By it a broker knows
      whether the partition still has what was read (KIP-320).
    """

    at: Mapping[At, int]
    ids: Mapping[str, str]
    begin: Mapping[At, int] = field(default_factory=dict)
    number: int = -1
    now: int = 0
    epochs: Mapping[At, int] = field(default_factory=dict)

    def is_cut_as(self, other: Offset) -> bool:
        """Whether two batches have the same records."""
        return (self.at, self.begin) == (other.at, other.begin)

    def to_json(self) -> dict[str, Any]:
        """The form that Spark logs."""
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
        """The offset that `to_json` wrote."""
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
    """How far a batch of at most `rows` rows goes: every partition in proportion to its lag, so that topics keep pace.

    A partition that lags gets one row at least, which may exceed `rows` by fewer than there are partitions.
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
    """The ranges of a batch, for at most `tasks` read tasks of equal size.

    A task gets `rows_per_task` rows at least: small batches take few tasks. A large partition is cut, since what a
    row means does not depend on who reads it; but not where partitions are to stay `whole`. `epochs` are those of what
    lies before `begin`.
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
    """Whole ranges for so many tasks, the largest first, each to the task that has least."""
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
            # A leader of what lies before is known of the beginning alone.
            task.append(Range(part.topic, part.partition, start, stop, part.epoch if start == part.start else -1))
            room -= stop - start
            start = stop
            if not room:
                tasks.append(tuple(task))
                task, room = [], size
    return [*tasks, tuple(task)] if task else tasks
