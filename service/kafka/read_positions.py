"""Track a read task's progress through its ranges, one array of records at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.service.kafka.offsets import Range


class Positions:
    """The current positions in a set of ranges, with at most one range per partition."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = tuple(ranges)
        self.position = np.array([part.start for part in ranges], np.int64)
        self.partition = np.array([part.partition for part in ranges], np.int64)
        self._end = np.array([part.end for part in ranges], np.int64)
        self.topics = sorted({part.topic for part in ranges})
        self._topic = np.array([self.topics.index(part.topic) for part in ranges], np.int64)
        # The last row and column represent topics and partitions that are not read.
        self._number = np.full((len(self.topics) + 1, max(self.partition, default=0) + 2), -1)
        self._number[self._topic, self.partition] = np.arange(len(ranges))

    @property
    def left(self) -> int:
        """The number of offsets still to be read."""
        return int(np.maximum(self._end - self.position, 0).sum())

    @property
    def open(self) -> Indices:
        """The indices of the ranges that have not been read to their end."""
        return np.flatnonzero(self.position < self._end)

    def find(self, topic: Int64s, partition: Int64s) -> Int64s:
        """Return the index of each record's range, or -1 if it is in no range. `topic`: numbers in `topics`, or -1."""
        number: Int64s = self._number[topic, np.minimum(partition, self._number.shape[1] - 1)]
        return number

    def advance(self, ranges: Int64s, offset: Int64s) -> Mask:
        """Advance past the records at the given offsets. Return a mask of the records that are inside their ranges."""
        known = ranges >= 0
        np.maximum.at(self.position, ranges[known], offset[known] + 1)
        return known & (offset < self._end[ranges])

    def finish(self, number: int) -> None:
        """Mark a range as completely read."""
        self.position[number] = self._end[number]

    def by_topic(self, ranges: Int64s) -> Iterator[tuple[str, Indices | None]]:
        """Yield each topic with the indices of its records, or with None if all records belong to the topic."""
        topic = self._topic[ranges]
        for number, name in enumerate(self.topics):
            members = np.flatnonzero(topic == number)
            if len(members):
                yield name, members if len(members) < len(topic) else None
