"""A consistent cut: the offsets of the sources and of the result topics after the same batch of a query.

A batch's tasks commit one after the other, each with its rows and its progress in one transaction, and the next batch
begins when all of them have committed. So there is a moment between two batches at which the result topics have a whole
batch and nothing of the next one. A running job does not stop for the audit, so such a moment has to be found:

1. Read the ends of the progress topic, the stable ends of the result topics, and the ends of the progress topic again.
   The ends of the progress topic include open transactions. If both are equal, and no transaction is open, then no task
   has committed in between: a task's progress record precedes the commit of its rows.
2. Such a sample may still lie within a batch, after some of its tasks. This shows once the next batch has begun to
   commit, because then every progress record of the batch before is there. If the sample was taken after the last of
   them and before the first of the next batch, it is a cut.
3. If nothing is written for `_IDLE_SECONDS`, the job is idle or stopped, and the sample is a cut that is not *proven*:
   a job may have been killed in the middle of a batch, or one task may take long. If the audit then finds differences,
   it must look again.

The extent of the batch, in its progress record, has the offsets of the sources. Records of earlier batches tell when
each row was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from rowkind.errors import RowkindError
from rowkind.service.kafka import progress
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import At, Offset, Range
from rowkind.service.kafka.progress import Progress
from rowkind.service.kafka.topics import PROGRESS, names

_PAUSE_SECONDS = 0.02
_IDLE_SECONDS = 3.0
_PATIENCE_SECONDS = 60.0
_SOON_SECONDS = 5.0


class NoCutError(RowkindError):
    """No moment between two batches was found."""


@dataclass(frozen=True)
class BatchCut:
    """The offsets after a batch.

    - `sources`: the offsets after the last records that the results contain.
    - `results`: the offsets after the last records of the result topics.
    - `batches`: the ends of the recorded batches up to this one, in order.
    - `proven`: whether the next batch has shown that this one was complete.
    """

    sources: Mapping[At, int]
    results: Mapping[At, int]
    batches: tuple[Offset, ...]
    proven: bool

    @property
    def begin(self) -> Mapping[At, int]:
        """Where the query began to read, as far as it is still recorded."""
        return self.batches[0].begin if self.batches[0].number == 0 else {}


def progress_of_sinks(kafka: KafkaSettings, job: str) -> dict[str, tuple[str, Progress]]:
    """Return, for each sink that a job has written, its query's progress topic and last progress.

    Raises ChangelogError.
    """
    found: dict[str, tuple[str, Progress]] = {}
    own = [name for name in names(kafka) if name.startswith(f"{job}.") and name.endswith(PROGRESS)]
    for topic, last in progress.latest(kafka, own).items():
        for sink in last.sinks if last.job == job else ():
            if sink not in found or found[sink][1].run < last.run:
                found[sink] = topic, last
    return found


@dataclass(frozen=True)
class Sample:
    """The ends of the progress topic and of the result topics at a moment at which no transaction was open."""

    written: Mapping[At, int]
    results: Mapping[At, int]


ProgressRecords = Mapping[At, Sequence[tuple[int, Progress]]]
"""The progress records of each partition, with their offsets, in order."""


def find_cut(kafka: KafkaSettings, topic: str, results: Iterable[str], *, idle: bool = False) -> BatchCut:
    """Return a cut of the query with this progress topic. If `idle` is set, wait until the job writes nothing.

    Raises NoCutError, or ChangelogError.
    """
    cluster = Cluster(kafka)
    at, written_to = cluster.topics([topic]).partitions, cluster.topics(results).partitions
    samples: list[Sample] = []
    since = began = time.monotonic()
    while time.monotonic() < began + _PATIENCE_SECONDS:
        if (sample := _sample(cluster, at, written_to)) is None or sample not in samples[-1:]:
            since = time.monotonic()
            if sample is not None:
                samples = [*(each for each in samples if each.written != sample.written), sample]
                whole = None if idle else proven_sample(_records(kafka, at, sample.written), samples)
                if whole is not None:
                    return _cut(kafka, topic, whole, proven=True)
        elif time.monotonic() > since + _IDLE_SECONDS:
            return _cut(kafka, topic, samples[-1], proven=False)
        time.sleep(_PAUSE_SECONDS)
    raise NoCutError(
        f"in {_PATIENCE_SECONDS:.0f} s, there was no moment {'without writes' if idle else 'between two batches'} of "
        f"the query with the progress topic {topic}: try again, or stop the job for the audit"
    )


def last_batch(kafka: KafkaSettings, topic: str, results: Iterable[str]) -> BatchCut | None:
    """Return the last batch of the query with this progress topic, or None if there is none that can be read.

    Unlike `find_cut`, this function does not wait until the batch is known to be complete. Raises ChangelogError.
    """
    cluster = Cluster(kafka)
    at, written_to = cluster.topics([topic]).partitions, cluster.topics(results).partitions
    began = time.monotonic()
    while time.monotonic() < began + _SOON_SECONDS:
        if (sample := _sample(cluster, at, written_to)) is not None:
            try:
                return _cut(kafka, topic, sample, proven=False)
            except NoCutError:
                return None
        time.sleep(_PAUSE_SECONDS)
    return None


def _sample(cluster: Cluster, at: Sequence[At], written_to: Sequence[At]) -> Sample | None:
    """Return the ends of the result topics, or None if a task may have committed meanwhile."""
    written, stable = cluster.written(at), cluster.ends(at)
    ends = cluster.ends(written_to)
    return Sample(written, ends) if written == stable == cluster.written(at) else None


def proven_sample(records: ProgressRecords, samples: Sequence[Sample]) -> Sample | None:
    """Return the last sample that progress records prove to lie between two batches, or None.

    `records` are all progress records up to the last sample. Records of another checkpoint say nothing about a batch,
    because each checkpoint has its own batch numbers.
    """
    first = next(each for each in records if each[1] == 0)
    for sample in reversed(samples):
        before = [each for offset, each in records[first] if offset < sample.written[first]]
        if not before or not before[-1].extent:
            continue
        last = before[-1]
        own = [
            (each.batch > last.batch, offset >= sample.written[place])
            for place, found in records.items()
            for offset, each in found
            if each.checkpoint == last.checkpoint
        ]
        if (True, True) in own and all(is_later == is_after for is_later, is_after in own):
            return sample
    return None


def _records(kafka: KafkaSettings, at: Sequence[At], ends: Mapping[At, int]) -> ProgressRecords:
    """Return the progress records of each partition with their offsets."""
    earliest = Cluster(kafka).earliest(at)
    ranges = [Range(*each, earliest[each], ends[each]) for each in at if ends[each] > earliest[each]]
    found: dict[At, list[tuple[int, Progress]]] = {each: [] for each in at}
    with closing(Fetcher(dict(kafka))) as fetcher:
        for chunk in fetcher.fetch(ranges, {each.topic: "earliest" for each in ranges}) if ranges else ():
            for records in chunk:
                rows = zip(records.partition.tolist(), records.offset.tolist(), records.value.to_pylist(), strict=True)
                for partition, offset, value in rows:
                    found[records.topic, partition].append((offset, Progress.from_bytes(value)))
    return {place: sorted(each, key=lambda pair: pair[0]) for place, each in found.items()}


def _cut(kafka: KafkaSettings, topic: str, sample: Sample, *, proven: bool) -> BatchCut:
    first = topic, 0
    records = [each for _, each in _records(kafka, [first], sample.written)[first] if each.extent]
    if not records:
        raise NoCutError(f"the progress topic {topic} has no batch yet")
    own = [each for each in records if each.checkpoint == records[-1].checkpoint]
    ends = {each.batch: Offset.from_json(json.loads(each.extent)) for each in own}
    batches = tuple(ends[number] for number in sorted(ends))
    return BatchCut(dict(batches[-1].at), sample.results, batches, proven)
