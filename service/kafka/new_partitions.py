"""Batches of a topic that has gained partitions, cut so that older records are read first.

A key may be in another partition since then, and its newer rows must not be overwritten by the older ones: within a
batch the greater offset wins, which says nothing across partitions. So a partition is read from its beginning only when
the other partitions have been read up to the time of its first record. Partitions are added behind those there are: the
time at which there were more than k partitions is that of the first record of all from the k-th on.

Before the first record of a new partition, keys that have moved between old partitions are not distinguished. Times are
those of the records. One in the future is no time at which a topic has grown, and cuts nothing.
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
    """The ends of a batch from `begin`, not beyond the next time at which one of these topics gained partitions.

    `earliest` are the first offsets of all partitions. Raises a ChangelogError.
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
    """When the partitions may have been added, in order, from the times of their first records."""
    found: set[int] = set()
    earliest: int | None = None
    for at in sorted(first, reverse=True):
        earliest = first[at] if earliest is None else min(earliest, first[at])
        found.add(earliest)
    return sorted(found)
