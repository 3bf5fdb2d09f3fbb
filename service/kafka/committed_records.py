"""Read all records that are committed to a topic, or a single record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record import OneRecord, Records


def committed(kafka: KafkaSettings, topic: str) -> Iterator[Records]:
    """Yield all records that are currently committed to a topic, fetched whole, in chunks. Raises ChangelogError."""
    cluster = Cluster(kafka)
    partitions = cluster.topics([topic]).partitions
    begin, end = cluster.earliest(partitions), cluster.ends(partitions)
    yield from _whole(kafka, topic, [Range(*at, begin[at], end[at]) for at in partitions if end[at] > begin[at]])


def record_at(kafka: KafkaSettings, topic: str, partition: int, offset: int) -> OneRecord | None:
    """Return the record at an offset, or None if it no longer exists. Raises ChangelogError."""
    found = list(_whole(kafka, topic, [Range(topic, partition, offset, offset + 1)]))
    return next(found[0].each) if found else None


def _whole(kafka: KafkaSettings, topic: str, ranges: Sequence[Range]) -> Iterator[Records]:
    with closing(Fetcher(kafka, whole=True)) as fetcher:
        for chunk in fetcher.fetch(ranges, {topic: "earliest"}):
            yield from chunk
