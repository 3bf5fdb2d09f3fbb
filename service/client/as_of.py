"""A moment in the past at which topics are read: a time, or the record at an offset."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowkind.avro.time_text import PER_SECOND, moment_of
from rowkind.service.client.external_table import OutsideError
from rowkind.service.client.query_names import job_tables
from rowkind.service.job import duration
from rowkind.service.job.model import Job
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.committed_records import record_at
from rowkind.service.kafka.offsets import At

_RECORD = re.compile(r"([\w.-]+):(\d+):(\d+)")


@dataclass(frozen=True)
class AsOf:
    """The records to read: those up to and including a time, except in partitions for which `offsets` gives the end.

    `time_ms`: ms since the epoch.
    """

    time_ms: int
    offsets: Mapping[At, int] = field(default_factory=dict)

    def ends(self, cluster: Cluster, partitions: Sequence[At]) -> dict[At, int]:
        """Return the offset after the last record to read, by topic and partition. Raises ChangelogError."""
        return cluster.at_time(partitions, self.time_ms + 1) | {
            at: end for at, end in self.offsets.items() if at in partitions
        }


def as_of(job: Job, texts: Sequence[str]) -> AsOf:
    """Return the moment that the texts describe.

    A single text may be a time, such as `2026-01-31T12:00:00Z`, or a length of time before now, such as `-1h`. A time
    without a zone is in UTC. Otherwise each text is a record, `NAME:PARTITION:OFFSET`, where the name is a topic, table
    or sink. Partitions without a record are read up to the time of the latest of these records. Raises OutsideError,
    JobError or ChangelogError.
    """
    if len(texts) == 1 and (moment := _time(texts[0].strip())) is not None:
        return AsOf(moment)
    offsets, latest, tables, cluster = {}, 0, job_tables(job), Cluster(job.brokers)
    for text in texts:
        found = _RECORD.fullmatch(text.strip())
        if found is None:
            raise OutsideError(
                f"{text!r} is not a moment: write a time such as 2026-01-31T12:00:00Z, a length of time before now "
                "such as -1h, or a record as NAME:PARTITION:OFFSET"
            )
        name, partition, offset = found[1], int(found[2]), int(found[3])
        topic = tables[name].topic if name in tables else name
        if not topic:
            raise OutsideError(f"{name} has no topic, so it has no record {text.strip()}: name another table or sink")
        at = (topic, partition)
        there = at in cluster.topics([topic]).partitions and (
            cluster.earliest([at])[at] <= offset < cluster.ends([at])[at]
        )
        record = record_at(job.brokers, topic, partition, offset) if there else None
        if record is None:
            raise OutsideError(f"there is no record at offset {offset} of partition {partition} of topic {topic}")
        offsets[at] = offset + 1
        latest = max(latest, record.timestamp)
    return AsOf(latest, offsets)


def _time(text: str) -> int | None:
    """Return a time in ms since the epoch, or None if the text is not a time."""
    try:
        if text.startswith("-"):
            return round(time.time() * 1000) - duration.parse(text[1:])
        return moment_of(text, PER_SECOND["millis"])[0]
    except ValueError:
        return None
