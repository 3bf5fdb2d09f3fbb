"""Claims to result topics: each query records, with its progress, the topics to which it writes.

Two jobs that write to the same topic would write every row twice, or retract each other's rows. The last progress of a
query (`service.kafka.progress`) names the job and its result topics, even while the job is stopped. So a starting job
reads the progress topics of all other jobs that its Kafka user may see. A claim ends when its query is started without
the sink, or when another job takes the topic over (`release`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rowkind.service.kafka import at_least_once, progress
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.errors import ClaimedTopicsError
from rowkind.service.kafka.progress import BatchPartition, Progress
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.topics import PROGRESS, names
from rowkind.service.kafka.transaction import TransactionalWriter


@dataclass(frozen=True)
class Claim:
    """A query's claim to the result `topics`, according to its `last` progress record in `progress_topic`."""

    topics: tuple[str, ...]
    progress_topic: str
    last: Progress


def claims(kafka: KafkaSettings, topics: Collection[str], job: str) -> list[Claim]:
    """Return the claims of jobs other than `job` to any of the given topics, as far as this Kafka user can see them.

    Raises ChangelogError.
    """
    return [each for each in _all(kafka) if each.last.job != job and not set(each.topics).isdisjoint(topics)]


def check(kafka: KafkaSettings, topics: Collection[str], job: str) -> None:
    """Check that no other job writes to any of the given topics. Raises ClaimedTopicsError."""
    if found := claims(kafka, topics, job):
        raise _refused(found, topics)


def claim(spec: WriterSpec) -> None:
    """Record a query's claim, unless it is already recorded.

    Raises ClaimedTopicsError if another job has a claim too.
    """
    before = progress.read(spec.kafka, spec.progress_topic, 0)
    if before is not None and list(before.topics) == sorted(spec.claims) and before.job == spec.job:
        return
    _sign(spec, before)
    # If two jobs checked before either had recorded its claim, the job whose name comes first in alphabetical order
    # continues.
    found = [each for each in claims(spec.kafka, spec.claims, spec.job) if each.last.job < spec.job]
    if found:
        _sign(spec.without_claims(), before)
        raise _refused(found, spec.claims)


def release(kafka: KafkaSettings, topics: Collection[str], job: str) -> Iterator[tuple[str, str]]:
    """Take the given topics from other jobs, and yield each topic with the job that claimed it.

    The other jobs' queries stop if they are running. Raises ChangelogError.
    """
    for each in claims(kafka, topics, job):
        left = tuple(topic for topic in each.topics if topic not in topics)
        run = progress.next_run(each.last.run)
        spec = WriterSpec(each.last.job, each.last.query, {}, kafka, each.progress_topic, run=run, claims=left)
        writing = TransactionalWriter(spec, 0)
        writing.sign()
        writing.discard()
        yield from ((topic, each.last.job) for topic in each.topics if topic in topics)


def _sign(spec: WriterSpec, before: Progress | None) -> None:
    if spec.transactions or not spec.sinks:
        writing = TransactionalWriter(spec, 0)
        writing.sign()
        writing.discard()
    else:
        at_least_once.push_progress(spec, (before or Progress.of(spec, BatchPartition("", -1, 0))).signed(spec))


def _all(kafka: KafkaSettings) -> Iterator[Claim]:
    found = progress.latest(kafka, [name for name in names(kafka) if name.endswith(PROGRESS)])
    yield from (Claim(tuple(last.topics), name, last) for name, last in found.items() if last.topics)


def _refused(found: Sequence[Claim], topics: Collection[str]) -> ClaimedTopicsError:
    taken = {topic: each for each in found for topic in each.topics if topic in topics}
    holder = taken[min(taken)]
    return ClaimedTopicsError(sorted(taken), holder.last.job, holder.progress_topic)
