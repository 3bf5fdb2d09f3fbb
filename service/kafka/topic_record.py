"""The state of a result topic when a query last wrote it, kept to detect later changes that make the result wrong.

Kafka assigns a new id to a topic that is deleted and re-created. Retention moves a partition's first offset. An unclean
leader election or a restored disk moves a partition's end back. Added partitions move a key's rows to another
partition. Compaction changes none of these, because it keeps offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from rowkind.service.kafka.cluster import Cluster


@dataclass(frozen=True)
class TopicRecord:
    """A topic at one moment: Kafka's `id`, and for each partition its first offset and its end (the next offset)."""

    id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def harm(self, now: TopicRecord | None, *, keeps_all: bool) -> str:
        """Describe the damage since this record, or return "". `now`: the current topic, None if it was deleted.

        `keeps_all`: the topic must contain every row of the result, and all rows of a key in the same partition.
        """
        if now is None:
            return "was deleted"
        if now.id != self.id:
            return "was deleted and re-created"
        for partition, (before, after) in enumerate(zip(self.ends, now.ends, strict=False)):
            if after < before:
                return f"has lost its last records: partition {partition} ends at offset {after}, not {before}"
        if keeps_all and len(now.ends) != len(self.ends):
            return f"has {len(now.ends)} partitions, not {len(self.ends)}, so a key's rows may be in two partitions"
        for partition, (before, after) in enumerate(zip(self.starts, now.starts, strict=False)):
            if keeps_all and after > before:
                return f"has lost its first records: partition {partition} begins at offset {after}, not {before}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that is saved with the checkpoint."""
        return {"id": self.id, "starts": self.starts, "ends": self.ends}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """Restore a record from its `to_json` form."""
        return cls(said["id"], tuple(said["starts"]), tuple(said["ends"]))


def topic_records(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicRecord]:
    """Return the current records of the named topics that exist. Raises ChangelogError."""
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
