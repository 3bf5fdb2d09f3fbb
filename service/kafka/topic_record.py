"""A topic as it was when a query wrote it, and what has become of it since that makes the result in it wrong.

Kafka gives a topic that is deleted and made anew another id. Retention moves the offset of the first record; an unclean
election of a leader, or a disk that is restored, moves the end of a partition back. More partitions send the rows of a
key elsewhere. Compaction does none of this: it leaves the offsets as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from rowkind.service.kafka.cluster import Cluster


@dataclass(frozen=True)
class TopicRecord:
    """Kafka's `id` of a topic; of each partition the first offset that is left, and the next one to be committed."""

    id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def harm(self, now: TopicRecord | None, *, keeps_all: bool) -> str:
        """What has become of the topic that is like this `now`, None if it is not there; nothing if all is well.

        `keeps_all`: the rows in it are the result, so that none may be missing and those of a key are in one partition.
        """
        if now is None:
            return "was deleted"
        if now.id != self.id:
            return "was deleted and made anew"
        for partition, (before, after) in enumerate(zip(self.ends, now.ends, strict=False)):
            if after < before:
                return f"has lost its last records: partition {partition} ends at offset {after}, not {before}"
        if keeps_all and len(now.ends) != len(self.ends):
            return f"has {len(now.ends)} partitions, not {len(self.ends)}, so that rows of one key lie in two of them"
        for partition, (before, after) in enumerate(zip(self.starts, now.starts, strict=False)):
            if keeps_all and after > before:
                return f"has lost its first records: partition {partition} begins at offset {after}, not {before}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The form for a note."""
        return {"id": self.id, "starts": self.starts, "ends": self.ends}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """What `to_json` made."""
        return cls(said["id"], tuple(said["starts"]), tuple(said["ends"]))


def topic_records(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicRecord]:
    """Those of these topics that are there, as they are now. Raises a ChangelogError."""
    found = cluster.present(names)
    starts, ends = cluster.earliest(found.partitions), cluster.ends(found.partitions)
    return {
        name: TopicRecord(
            topic_id,
            tuple(starts[at] for at in found.partitions if at[0] == name),
            tuple(ends[at] for at in found.partitions if at[0] == name),
        )
        for name, topic_id in found.ids.items()
    }
