"""Deletes that compaction may have removed from a source topic while the job was not running.

Compaction keeps a tombstone for the topic's `delete.retention.ms`. A job that reads the topic later finds neither the
row nor its deletion, so the row stays in state and results. The topic does not show that this happened. So a starting
job reports the topics where it may have happened: topics with new records that the job last read longer ago than
tombstones are kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import At
from rowkind.service.kafka.topics import settings_of
from rowkind.service.physical.graph import Graph
from rowkind.service.physical.source_table import SourceTable


@dataclass(frozen=True)
class ForgottenDeletes:
    """A topic that was not read for `rested` seconds, and whose tombstones are kept for `kept` seconds."""

    table: str
    topic: str
    kept: float
    rested: float

    def __str__(self) -> str:
        return (
            f"Table {self.table}: topic {self.topic} was not read for {_time(self.rested)}, but its compaction keeps "
            f"deletes for only {_time(self.kept)} (delete.retention.ms). Rows that were deleted in the meantime may "
            "remain in the results indefinitely. `rowkind run --reset-state` retracts such rows. To prevent this, set "
            "delete.retention.ms to more than the longest time for which the job is stopped."
        )


def forgotten_deletes(
    graph: Graph, cluster: Cluster, at: Mapping[At, int], read_last_ms: float
) -> Iterator[ForgottenDeletes]:
    """Yield a query's tables that may lack deletes, given the offsets read and the time of the last read.

    Raises ChangelogError.
    """
    tables = {table.topic: table for table in replaced_tables(graph)}
    behind = _behind(cluster, tables, at)
    rested = time.time() - read_last_ms / 1000
    for name, settings in settings_of(cluster.kafka, behind).items():
        kept = float(settings.get("delete.retention.ms") or "inf") / 1000
        if "compact" in settings.get("cleanup.policy", "") and rested > kept:
            yield ForgottenDeletes(tables[name].table, name, kept, rested)


def replaced_tables(graph: Graph) -> list[SourceTable]:
    """Return the tables whose rows replace each other, so that their topics may be compacted."""
    found = [each.scan.source for each in graph.scans]
    return [table for table in found if (table.mode == "upsert" or table.debezium) and table.generation is None]


def _behind(cluster: Cluster, topics: Collection[str], at: Mapping[At, int]) -> list[str]:
    """Return the topics that have new records since they were read."""
    partitions = [each for each in at if each[0] in topics]
    ends = cluster.ends(partitions)
    return sorted({each[0] for each in partitions if ends[each] > at[each]})


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
