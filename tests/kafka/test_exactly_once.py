"""Exactly-once writes under retries, replays, zombies and kills, as a read_committed consumer sees them."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from rowkind.operators.columns.batch import Batch
from rowkind.service.checkpoint.cut_over import take_over
from rowkind.service.dev.broker import Broker
from rowkind.service.execute.members import address
from rowkind.service.kafka import progress, transaction
from rowkind.service.kafka.errors import ContradictionError, FencedError, TransactionError, UnfitTopicError, fences
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.record_builder import RecordBuilder, prepare, send
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.transaction import TransactionalWriter, write_once
from tests.kafka.sinks import MakeSink, Sink, changes, committed
from tests.kafka.tables import order
from tests.run.process import until

pytestmark = pytest.mark.kafka

FIRST = BatchPartition("checkpoint", 0, 0)
HUGE = random.Random(0).randbytes(1_000_000).hex()
"""A text that stays larger than the topic's limit of one megabyte even if it is compressed."""


def some(sink: Sink, *numbers: int) -> RecordBuilder:
    """Return a batch of inserts into the first sink."""
    once, _ = prepare(sink.spec, Batch(changes(*(("+I", order(number)) for number in numbers))))
    return once


def ids(sink: Sink) -> list[int]:
    """Return the ids of the rows in the topic."""
    return [message.row["id"] for message in sink.messages()]


def another_worker() -> None:
    """Forget this process's producers, as if the next task ran in another process."""
    transaction._writers.clear()


def test_a_replayed_batch_writes_nothing_twice(make_sink: MakeSink) -> None:
    """A committed batch is skipped, in the same worker and in another one."""
    sink = make_sink()
    assert write_once(sink.spec, FIRST, some(sink, 1, 2)) == ("committed", 0)
    assert write_once(sink.spec, FIRST, some(sink, 1, 2)) == ("skipped", 0)
    another_worker()
    assert write_once(sink.spec, FIRST, some(sink, 1, 2)) == ("skipped", 0)
    assert write_once(sink.spec, BatchPartition("checkpoint", 1, 0), some(sink, 3)) == ("committed", 0)
    assert ids(sink) == [1, 2, 3]


def test_every_batch_is_on_record(make_sink: MakeSink) -> None:
    """The first partition records batches without results too, and a batch that is written again must be the same."""
    sink = make_sink()
    sink.write()
    sink.write(changes(("+I", order(1))), batch=1)
    sink.write(batch=2)
    sink.write(partition=1, batch=3)
    topic = sink.spec.progress_topic
    assert len(committed(sink.spec.kafka, topic)) == 3
    recorded = list(progress.recorded(sink.spec.kafka, topic))
    assert [each.batch for each in recorded] == [0, 1, 2]
    assert {each.key for each in recorded} == {f"job/{sink.topic}/0/{number}".encode() for number in range(3)}
    assert progress.read(sink.spec.kafka, topic, 1) is None
    extent = Offset({("t", 0): 3}, {"t": "id"}, {("t", 0): 1}, 4, 5)
    fourth = BatchPartition("c", 4, 0, 5, json.dumps(extent.to_json()))
    other = replace(fourth, extent=json.dumps(replace(extent, at={("t", 0): 2}).to_json()))
    assert write_once(sink.spec, fourth, some(sink, 2)) == ("committed", 0)
    with pytest.raises(ContradictionError, match="Batch 4 of query"):
        write_once(sink.spec, other, some(sink, 2))
    assert write_once(sink.spec, fourth, some(sink, 2)) == ("skipped", 0)


def test_partitions_and_checkpoints_keep_their_own_progress(make_sink: MakeSink) -> None:
    """Another partition's batch, or the same batch number under a new checkpoint, is a different batch."""
    sink = make_sink()
    for number, batch_partition in enumerate(
        (FIRST, BatchPartition("checkpoint", 0, 1), BatchPartition("another", 0, 0))
    ):
        assert write_once(sink.spec, batch_partition, some(sink, number)) == ("committed", 0)
    assert ids(sink) == [0, 1, 2]


def test_progress_is_found_behind_many_transactions_that_were_aborted(make_sink: MakeSink) -> None:
    """Offsets of aborted attempts and markers lie between the last progress record and the end of the partition."""
    sink = make_sink()
    write_once(sink.spec, FIRST, some(sink, 1))
    another_worker()
    producer = Producer({**sink.spec.kafka, "transactional.id": sink.spec.transactional_id(0)})
    producer.init_transactions(20)
    for _ in range(30):
        producer.begin_transaction()
        producer.produce(sink.spec.progress_topic, b"never", b"k", partition=0)
        producer.flush(20)
        producer.abort_transaction()
    assert write_once(sink.spec, FIRST, some(sink, 1)) == ("skipped", 0)
    found = progress.read(sink.spec.kafka, sink.spec.progress_topic, 0)
    assert found is not None
    assert found.covers(FIRST)
    assert progress.read(sink.spec.kafka, sink.spec.progress_topic, 3) is None


def test_progress_is_read_of_a_partition_that_its_topic_got_later(
    broker: Broker, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    """A process that has read the topic before finds partitions added later, as when a query gets more tasks."""
    topic, kafka = new_topic(), {"bootstrap.servers": broker.bootstrap_servers}
    assert progress.read(kafka, topic, 0) is None
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2, "another partition")
    assert progress.read(kafka, topic, 1) is None


def test_a_zombie_is_fenced_and_its_rows_never_show(make_sink: MakeSink) -> None:
    """An attempt that hangs between produce and commit is fenced by the attempt that replaces it."""
    sink = make_sink()
    zombie = TransactionalWriter(sink.spec, 0)
    zombie._producer.begin_transaction()
    zombie._producer.produce(sink.topic, b"", b"z")
    zombie._producer.flush(20)
    assert write_once(sink.spec, FIRST, some(sink, 1)) == ("committed", 0)
    with pytest.raises(KafkaException) as fenced:
        zombie._producer.commit_transaction(20)
    assert fences(fenced.value.args[0])
    assert ids(sink) == [1]


def test_a_kept_producer_that_was_fenced_is_replaced_and_asks_what_happened(make_sink: MakeSink) -> None:
    """If another machine wrote batch 1, the process that wrote batch 0 recovers and writes batch 2."""
    sink = make_sink()
    write_once(sink.spec, FIRST, some(sink, 1))
    elsewhere = TransactionalWriter(sink.spec, 0)
    assert elsewhere.write(BatchPartition("checkpoint", 1, 0), some(sink, 2)) == "committed"
    assert write_once(sink.spec, BatchPartition("checkpoint", 2, 0), some(sink, 3)) == ("committed", 1)
    again = TransactionalWriter(sink.spec, 0)
    assert again.write(BatchPartition("checkpoint", 3, 0), some(sink, 4)) == "committed"
    assert write_once(sink.spec, BatchPartition("checkpoint", 3, 0), some(sink, 4)) == ("skipped", 1)
    assert ids(sink) == [1, 2, 3, 4]


@pytest.mark.parametrize("took_place", [False, True])
def test_a_commit_whose_outcome_is_unknown_is_settled_by_the_progress_topic(
    make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch, took_place: bool
) -> None:
    """After a time-out before or after the commit, the next producer finds the outcome, and each row is there once."""
    sink = make_sink()
    write = TransactionalWriter.write
    trials = []

    def lost_answer(writer: TransactionalWriter, batch_partition: BatchPartition, outgoing: RecordBuilder) -> Any:
        trials.append(batch_partition)
        if len(trials) == 1:
            if took_place:
                write(writer, batch_partition, outgoing)
            else:
                writer._producer.begin_transaction()
                writer._producer.produce(sink.topic, b"", b"k")
                writer._producer.flush(20)
            raise KafkaException(transaction.KafkaError(transaction.KafkaError._TIMED_OUT))
        return write(writer, batch_partition, outgoing)

    monkeypatch.setattr(TransactionalWriter, "write", lost_answer)
    assert write_once(sink.spec, FIRST, some(sink, 1)) == ("skipped" if took_place else "committed", 1)
    assert ids(sink) == [1]


def test_a_message_that_kafka_refuses_fails_the_task_in_words(make_sink: MakeSink) -> None:
    """None of the batch's rows are visible, and the error names the topic."""
    sink = make_sink()
    huge, _ = prepare(sink.spec, Batch(changes(("+I", order(1)), ("+I", order(2, HUGE)))))
    with pytest.raises(UnfitTopicError, match=f"{sink.topic}.*larger than its topic accepts"):
        write_once(sink.spec, FIRST, huge)
    assert write_once(sink.spec, FIRST, some(sink, 3)) == ("committed", 0)
    assert ids(sink) == [3]


def test_a_clock_that_is_off_is_told_in_words(make_sink: MakeSink) -> None:
    """A broker that refuses a record whose time is too far ahead leads to an error that says to correct the clock."""
    told = transaction._meaning(make_sink().spec, KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP)))
    assert isinstance(told, TransactionError)
    assert told.retryable
    assert str(told).endswith("allow. Correct the clock.")


def test_a_kill_between_produce_and_commit_leaves_nothing_visible(make_sink: MakeSink, tmp_path: Path) -> None:
    """After SIGKILL with uncommitted rows and progress, the next attempt aborts them and writes its own."""
    sink = make_sink()
    (tmp_path / "spec").write_bytes(pickle.dumps(sink.spec))
    script = """
import pickle, sys, time
from pathlib import Path
from rowkind.service.kafka.progress import BatchPartition
from rowkind.operators.columns.batch import Batch
from rowkind.service.kafka.record_builder import prepare, send
from rowkind.service.kafka.transaction import TransactionalWriter
from tests.kafka.sinks import changes
from tests.kafka.tables import order
from tests.run.process import until
spec = pickle.loads(Path(sys.argv[1]).read_bytes())
writer = TransactionalWriter(spec, 0)
writer._producer.begin_transaction()
once, _ = prepare(spec, Batch(changes(("+I", order(1)), ("+I", order(2)))))
send(writer._producer, spec, once, {topic: 1 for topic in once.topics}, reported=False)
writer._producer.produce(spec.progress_topic, b"{}", b"k", partition=0)
writer._producer.flush(20)
print("sent", flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "spec")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "sent\n"
        os.kill(worker.pid, signal.SIGKILL)
    assert write_once(sink.spec, FIRST, some(sink, 1, 2)) == ("committed", 0)
    assert ids(sink) == [1, 2]
    assert len(committed(sink.spec.kafka, sink.spec.progress_topic)) == 1


def test_all_sinks_of_a_query_are_written_in_one_transaction(make_sink: MakeSink) -> None:
    """Before the commit, no topic shows rows; after it, all topics do, and progress is recorded once."""
    query = make_sink().beside(make_sink(form="upsert"), make_sink(keyed=False))
    batch = Batch.concat([address(Batch(changes(("+I", order(place)))), place) for place in query.spec.sinks])
    once, repeatable = prepare(query.spec, batch)
    topics = [sink.topic for sink in query.spec.sinks.values()]
    assert once.topics == topics
    assert not len(repeatable)
    writer = TransactionalWriter(query.spec, 0)
    writer._producer.begin_transaction()
    send(writer._producer, query.spec, once, dict.fromkeys(topics, 1), reported=False)
    writer._producer.flush(20)
    assert [query.messages(topic) for topic in topics] == [[], [], []]
    assert write_once(query.spec, FIRST, once) == ("committed", 0)
    assert [[message.row for message in query.messages(topic)] for topic in topics] == [[order(n)] for n in range(3)]
    assert len(committed(query.spec.kafka, query.spec.progress_topic)) == 1
    another_worker()
    assert write_once(query.spec, FIRST, once) == ("skipped", 0)
    assert [len(query.messages(topic)) for topic in topics] == [1, 1, 1]


def test_a_topic_that_refuses_its_rows_takes_those_of_the_other_sinks_with_it(make_sink: MakeSink) -> None:
    """A message too large for Kafka leaves no rows in any topic, and the error names all topics."""
    query = make_sink().beside(make_sink())
    rows = [changes(("+I", order(1))), changes(("+I", order(2, HUGE)))]
    huge, _ = prepare(query.spec, Batch.concat([address(Batch(part), place) for place, part in enumerate(rows)]))
    first, second = (sink.topic for sink in query.spec.sinks.values())
    with pytest.raises(UnfitTopicError, match=f"topics {first}, {second}.*larger than its topic accepts"):
        write_once(query.spec, FIRST, huge)
    assert (query.messages(first), query.messages(second)) == ([], [])


def test_two_runs_of_one_job_end_in_an_error_and_not_in_doubled_rows(make_sink: MakeSink) -> None:
    """A run that is fenced repeatedly gives up, and the topic has each batch once."""
    sink = make_sink()
    batches = [some(sink, batch) for batch in range(8)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        list(processes.map(write_all, [sink.spec] * 2, [batches] * 2, timeout=60))
    found = ids(sink)
    assert found == list(range(len(found)))
    assert found


def write_all(spec: WriterSpec, batches: Sequence[RecordBuilder]) -> None:
    """Write batch after batch, each with a new producer, until one of them is fenced."""
    with suppress(KafkaException):
        for number, batch in enumerate(batches):
            TransactionalWriter(spec, 0).write(BatchPartition("checkpoint", number, 0), batch)


def test_a_run_that_was_replaced_stops_instead_of_fencing_back(make_sink: MakeSink) -> None:
    """Two runs with separate checkpoints would write everything twice, so the earlier run gives up permanently."""
    sink = make_sink()
    name = progress.next_run()
    earlier, later = replace(sink.spec, run=name), replace(sink.spec, run=progress.next_run(name))
    assert write_once(earlier, BatchPartition("one", 0, 0), some(sink, 1)) == ("committed", 0)
    another_worker()
    assert write_once(later, BatchPartition("two", 0, 0), some(sink, 2)) == ("committed", 0)
    for _ in range(2):
        another_worker()
        with pytest.raises(FencedError, match="A later run of this job"):
            write_once(earlier, BatchPartition("one", 1, 0), some(sink, 3))
    another_worker()
    assert write_once(later, BatchPartition("two", 1, 0), some(sink, 4)) == ("committed", 0)
    assert ids(sink) == [1, 2, 4]


def test_a_run_that_takes_over_leaves_its_name_and_keeps_what_is_known(make_sink: MakeSink) -> None:
    """An earlier run ends even before the later one has written, and an existing batch is not written again."""
    sink = make_sink()
    earlier, later = (replace(sink.spec, run=run) for run in ("00000001-a", "00000002-a"))
    assert write_once(earlier, FIRST, some(sink, 1)) == ("committed", 0)
    take_over(later)
    with pytest.raises(FencedError, match="A later run"):
        write_once(earlier, BatchPartition("checkpoint", 1, 0), some(sink, 2))
    another_worker()
    assert write_once(later, FIRST, some(sink, 1)) == ("skipped", 0)
    assert write_once(later, BatchPartition("checkpoint", 1, 0), some(sink, 2)) == ("committed", 0)
    assert ids(sink) == [1, 2]
