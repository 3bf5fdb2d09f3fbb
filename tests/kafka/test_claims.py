"""The jobs' claims to topics, which are stored in progress topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.kafka import progress, topic_claims
from rowkind.service.kafka.errors import ClaimedTopicsError
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.record_builder import RecordBuilder
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.transaction import write_once
from tests.kafka.sinks import MakeSink
from tests.run.process import until

pytestmark = pytest.mark.kafka


def holder(make_sink: MakeSink, job: str) -> WriterSpec:
    """Return what a query of a job writes; the query claims its topic."""
    spec = make_sink().spec
    return replace(spec, job=job, claims=tuple(each.topic for each in spec.sinks.values()), run=progress.next_run())


def test_a_claim_is_left_before_anything_is_written_and_kept_by_every_batch(make_sink: MakeSink) -> None:
    """Other jobs are refused, the job itself is not, and a query without the sink releases the topic."""
    spec = holder(make_sink, "holder")
    topic_claims.check(spec.kafka, spec.claims, "other")
    topic_claims.claim(spec)
    with pytest.raises(ClaimedTopicsError, match="already written by job holder"):
        topic_claims.check(spec.kafka, spec.claims, "other")
    topic_claims.check(spec.kafka, spec.claims, "holder")
    topic_claims.check(spec.kafka, ["another-topic"], "other")
    write_once(spec, BatchPartition("checkpoint", 0, 0), RecordBuilder((), (), {}))
    assert topic_claims.claims(spec.kafka, spec.claims, "other")
    topic_claims.claim(spec.without_claims())
    topic_claims.check(spec.kafka, spec.claims, "other")


def test_of_two_jobs_that_start_at_once_one_goes_on(make_sink: MakeSink) -> None:
    """The job whose name sorts first keeps the topic, and the other one leaves no claim behind."""
    first = holder(make_sink, "a-job")
    second = replace(holder(make_sink, "b-job"), claims=first.claims)
    # Both jobs have checked, and neither has claimed yet.
    topic_claims.claim(first)
    with pytest.raises(ClaimedTopicsError, match="job a-job"):
        topic_claims.claim(second)
    topic_claims.check(first.kafka, first.claims, "a-job")


def test_topics_are_taken_from_a_job(make_sink: MakeSink) -> None:
    """The job keeps its other topics, and a run of it that is still alive is fenced by a later run."""
    spec = holder(make_sink, "holder")
    spec = replace(spec, claims=(*spec.claims, "kept-topic"))
    topic_claims.claim(spec)
    taken = spec.claims[:1]
    assert list(topic_claims.release(spec.kafka, taken, "other")) == [(taken[0], "holder")]
    topic_claims.check(spec.kafka, taken, "other")
    with pytest.raises(ClaimedTopicsError, match="kept-topic"):
        topic_claims.check(spec.kafka, ["kept-topic"], "other")
    last = progress.read(spec.kafka, spec.progress_topic, 0)
    assert last is not None
    assert last.run > spec.run
    assert list(topic_claims.release(spec.kafka, taken, "other")) == []


def test_topics_of_other_programs_are_no_claims(
    make_sink: MakeSink, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    """Any contents of a topic that only has the name of a progress topic are ignored."""
    spec = make_sink().spec
    producer = Producer({**spec.kafka, "log_level": 0})
    for number, value in enumerate((b"no JSON", b"[]", b"{}", b"3", None, b"\xff")):
        topic = f"{new_topic()}-{number}.progress"
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        until(lambda topic=topic: topic in admin.list_topics(timeout=10).topics, topic)
        producer.produce(topic, value, b"k")
    assert producer.flush(30) == 0
    topic_claims.check(spec.kafka, [each.topic for each in spec.sinks.values()], "other")
