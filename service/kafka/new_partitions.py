"""Cut batches of a topic that has gained partitions, so that older records are read first.

After partitions are added, a key may move to another partition. Its newer rows must not be overwritten by older ones,
but within a batch the greater offset wins, and offsets of different partitions cannot be compared. So reading a new
partition begins only when the others have been read up to the time of its first record. Partitions are numbered in the
order in which they are added. So the topic had more than k partitions from the earliest first record of the partitions
from number k on.

A key that moved between two old partitions is not handled until the new partition has its first record. Times are the
record timestamps. A time in the future cannot be one at which the topic grew, and is ignored.
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
    """Return the ends of a batch from `begin`, not beyond the next time at which one of these topics gained partitions.

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
    """Return the times (ms) at which partitions may have been added, in order, given the times of first records."""
    found: set[int] = set()
    earliest: int | None = None
    for at in sorted(first, reverse=True):
        earliest = first[at] if earliest is None else min(earliest, first[at])
        found.add(earliest)
    return sorted(found)
