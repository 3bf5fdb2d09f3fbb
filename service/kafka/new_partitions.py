"""Limit batches after a topic has gained partitions, so that older records are read first.

When partitions are added, a key may move to another partition. Older rows must not overwrite the key's newer rows, but
within a batch the row with the greater offset wins, and offsets in different partitions are not comparable. A new
partition is therefore read only when the others have been read up to the time of the new partition's first record.
Partitions are numbered in the order in which they are added. From the time of the earliest record in partitions k and
above, the topic had more than k partitions.

A key that moved between two old partitions is not handled until the new partition has its first record. Times are
record timestamps. Timestamps in the future are ignored, because the topic cannot have grown then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import At


def until_growth(
    cluster: Cluster,
    topics: Iterable[str],
    begin: Mapping[At, int],
    ends: Mapping[At, int],
    *,
    earliest: Mapping[At, int],
    now_ms: int,
) -> dict[At, int]:
    """Return the ends of a batch that starts at `begin`, limited to the next time at which a topic gained partitions.

    `earliest`: the first offsets of all partitions. Raises ChangelogError.
    """
    limited = dict(ends)
    for topic in topics:
        partitions = sorted(at for at in ends if at[0] == topic)
        unread = [at for at in partitions if begin[at] <= earliest[at] and ends[at] > begin[at]]
        if len(partitions) == 1 or not unread:
            continue
        behind = [at for at in partitions if ends[at] > begin[at]]
        for time in _growths({at: ms for at, ms in cluster.first_times(unread).items() if ms <= now_ms}):
            reached = cluster.at_time(behind, time)
            if any(reached[at] > begin[at] for at in behind):
                limited |= {at: min(ends[at], max(begin[at], reached[at])) for at in behind}
                break
    return limited


def _growths(first: Mapping[At, int]) -> list[int]:
    """Return, in order, the times in ms at which partitions may have been added. `first`: the first records' times."""
    found: set[int] = set()
    earliest: int | None = None
    for at in sorted(first, reverse=True):
        earliest = first[at] if earliest is None else min(earliest, first[at])
        found.add(earliest)
    return sorted(found)
