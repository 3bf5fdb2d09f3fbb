"""The writer on a real broker: the records in the topic, in each form of a sink."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import binary
from rowkind.service.execute.members import address
from rowkind.service.kafka import topics
from rowkind.service.kafka.clients import producer_settings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.errors import AppendOnlyError, UnfitTopicError
from rowkind.service.kafka.progress import recorded
from rowkind.service.kafka.sink import Counted
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader
from tests.kafka.murmur2 import murmur2, partition
from tests.kafka.sinks import MakeSink, Sink, changes, committed, symbols
from tests.kafka.tables import order, settings

pytestmark = pytest.mark.kafka

JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_a_retract_topic_has_the_old_row_before_the_new_one(make_sink: MakeSink) -> None:
    """A delete and an insert of one key in a batch become -U and +U, adjacent and with full rows."""
    sink = make_sink()
    sink.write(changes(("+I", order(1, "a")), ("+I", order(2, "b"))), batch=0)
    sink.write(changes(("+I", order(1, "c")), ("-D", order(1, "a")), ("-D", order(2, "b"))), batch=1)
    assert sink.ops() == [
        ("+I", order(1, "a")),
        ("+I", order(2, "b")),
        ("-D", order(2, "b")),
        ("-U", order(1, "a")),
        ("+U", order(1, "c")),
    ]


def test_an_upsert_topic_has_the_last_row_of_each_key_or_a_tombstone(make_sink: MakeSink) -> None:
    """An update is the new value alone, a delete is a null value, and there is no header."""
    sink = make_sink(form="upsert")
    sink.write(changes(("-D", order(1, "a")), ("+I", order(1, "b")), ("-D", order(2, "x")), ("+I", order(3, "c"))))
    found = {message.key: message.row for message in sink.messages()}
    assert found == {1: order(1, "b"), 2: None, 3: order(3, "c")}
    assert len(sink.messages()) == 3
    assert symbols(sink.messages()) == [None, None, None]


def test_an_upsert_stream_as_read_writes_the_last_change_of_each_key(make_sink: MakeSink) -> None:
    """Updates and deletes without old rows are accepted, and the last arrival wins."""
    sink = make_sink(form="upsert", by_seq=True)
    sink.write(changes(("+U", order(1, "a")), ("+U", order(1, "b")), ("+U", order(2, "x")), ("-D", order(2, None))))
    assert {message.key: message.row for message in sink.messages()} == {1: order(1, "b"), 2: None}


def test_an_append_topic_has_insertions_and_refuses_retractions(make_sink: MakeSink) -> None:
    """The error names sink and topic, and says which modes are possible."""
    sink = make_sink(form="append", keyed=False)
    sink.write(changes(("+I", order(1)), ("+I", order(1))), batch=0)
    assert sink.ops() == [("+I", order(1)), ("+I", order(1))]
    with pytest.raises(AppendOnlyError, match=f"{sink.topic}.*mode retract or upsert"):
        sink.write(changes(("-D", order(1))), batch=1)


def test_without_a_key_a_row_and_its_retraction_share_a_partition(make_sink: MakeSink) -> None:
    """Messages have no key, are placed by their content, and equal rows are counted."""
    sink = make_sink(keyed=False, partitions=4)
    rows = [order(number, "x") for number in range(40)]
    sink.write(changes(*(("+I", row) for row in rows), ("+I", rows[0])), batch=0)
    sink.write(changes(*(("-D", row) for row in rows), ("+I", order(99)), ("-D", order(99))), batch=1)
    places: dict[int, set[int]] = {}
    for message in sink.messages():
        assert message.key is None
        places.setdefault(message.row["id"], set()).add(message.partition)
    assert {len(partitions) for partitions in places.values()} == {1}
    assert len({min(partitions) for partitions in places.values()}) == 4
    left = Counter({row["id"]: 0 for row in rows})
    for kind, row in sink.ops():
        left[row["id"]] += 1 if kind == "+I" else -1
    assert {number: count for number, count in left.items() if count} == {0: 1}


def test_the_row_kind_is_spelled_as_the_sink_is_told(make_sink: MakeSink) -> None:
    """Header name and values are the job's; if a preset has no word for an update, its halves are -D and +I."""
    update = changes(("-D", order(1, "a")), ("+I", order(1, "b")))
    for preset, words in (
        ("words", [b"update_before", b"update_after"]),
        ("diff", [b"-1", b"1"]),
        ("debezium", [b"d", b"u"]),
    ):
        sink = make_sink(row_kind=RowKindHeader("change", PRESETS[preset]))
        sink.write(update)
        assert [message.headers for message in sink.messages()] == [[("change", word)] for word in words]


def test_keys_lie_where_javas_default_partitioner_looks_for_them(make_sink: MakeSink) -> None:
    """The reference partitioner passes Kafka's own test vectors, and agrees with the sink and the producer."""
    assert {key: murmur2(key) for key in JAVA_VECTORS} == JAVA_VECTORS
    sink = make_sink(partitions=7)
    sink.write(changes(*(("+I", order(number)) for number in range(200))))
    assert len({message.partition for message in sink.messages()}) == 7
    for message in sink.messages():
        assert message.partition == partition(message.raw_key, 7)
    other = make_sink(partitions=7)
    producer = Producer(producer_settings(other.spec.kafka))
    for key in JAVA_VECTORS:
        producer.produce(other.topic, b"", key)
    producer.flush(20)
    for message in committed(other.spec.kafka, other.topic):
        assert message.partition() == partition(message.key(), 7)


def test_dead_letters_leave_with_the_original_record_and_connects_headers(make_sink: MakeSink, new_topic: Any) -> None:
    """Key, value and headers are unchanged, and the letter has a new timestamp, so that retention keeps it."""
    sink = make_sink(dead_letter_topic=new_topic(1))
    began = time.time() * 1000
    letter = DeadLetter(
        table="orders",
        stage="value",
        error="UndecodableRowError",
        message="field 'id': cut off",
        topic="orders",
        partition=3,
        offset=42,
        timestamp=1_700_000_000_123,
        key=b"k",
        value=b"\xff\x00",
        headers=(("op", b"+I"), ("__connect.errors.stage", b"mine"), ("op", None)),
    )
    task = sink.write(Batch(changes(("+I", order(1))), letters=binary([letter.to_bytes()])))
    (message,) = committed(sink.spec.kafka, sink.spec.dead_letter_topic)
    assert (message.key(), message.value()) == (b"k", b"\xff\x00")
    assert message.timestamp()[1] > began - 1
    assert message.headers()[:3] == [("op", b"+I"), ("__connect.errors.stage", b"mine"), ("op", None)]
    assert dict(message.headers()[3:]) == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"42",
        "__connect.errors.timestamp": b"1700000000123",
        "__connect.errors.connector.name": b"job",
        "__connect.errors.task.id": sink.spec.query.encode(),
        "__connect.errors.exception.class.name": b"UndecodableRowError",
        "__connect.errors.exception.message": b"field 'id': cut off",
    }
    assert sink.ops() == [("+I", order(1))]
    assert task.written[f'rowkind_dead_letters_written_total{{query="{sink.spec.query}"}}'] == 1


def test_a_task_that_changes_nothing_opens_no_transaction(make_sink: MakeSink) -> None:
    """An insert that is retracted in the same batch is not written; only the first task writes progress."""
    sink = make_sink()
    task = sink.write(changes(("+I", order(1)), ("-D", order(1))), partition=1)
    assert sink.messages() == []
    assert committed(sink.spec.kafka, sink.spec.progress_topic) == []
    assert not [name for name in task.written if "transactions" in name]


def test_a_sink_without_transactions_writes_at_least_once(make_sink: MakeSink) -> None:
    """Every batch is written when the task ends, a repeated batch twice, and so is its progress record."""
    sink = make_sink(form="upsert", transactions=False)
    for _ in range(2):
        sink.write(changes(("+I", order(1, "a")), ("+I", order(2, "b"))))
    assert [message.row for message in sink.messages()] == [order(1, "a"), order(2, "b")] * 2
    assert [each.batch for each in recorded(sink.spec.kafka, sink.spec.progress_topic)] == [0, 0]


def test_a_query_writes_each_sink_as_it_says(make_sink: MakeSink) -> None:
    """A repeated batch is skipped by an exactly-once sink, and written again by an at-least-once sink."""
    query = make_sink().beside(make_sink(form="upsert", transactions=False))
    once, repeated = query.spec.sinks.values()
    batch = Batch.concat([address(Batch(changes(("+I", order(place + 1)))), place) for place in query.spec.sinks])
    first, second = (query.write(batch) for _ in range(2))
    assert query.ops(once.topic) == [("+I", order(1))]
    assert [message.row for message in query.messages(repeated.topic)] == [order(2)] * 2
    for counted, outcome, sinks in (
        (first, "committed", {once.sink, repeated.sink}),
        (second, "skipped", {repeated.sink}),
    ):
        assert counted.written[f'rowkind_transactions_total{{query="{query.spec.query}",outcome="{outcome}"}}'] == 1
        assert {sink.sink for sink in (once, repeated) if _rows_out(counted, sink.sink)} == sinks


def test_a_query_may_write_to_other_topics_from_one_batch_to_the_next(make_sink: MakeSink) -> None:
    """The topics change when a rebuilt query is cut over, and producers that were kept do not know the new ones."""
    query = make_sink().beside(make_sink(form="upsert", transactions=False))
    others = {place: replace(sink, topic=make_sink().topic) for place, sink in query.spec.sinks.items()}
    moved = Sink(replace(query.spec, sinks=others))
    batch = Batch.concat([address(Batch(changes(("+I", order(1)))), place) for place in query.spec.sinks])
    query.write(batch)
    moved.write(batch, batch=1)
    names = [sink.topic for sinks in (query.spec.sinks, others) for sink in sinks.values()]
    assert [len(query.messages(name)) for name in names] == [1, 1, 1, 1]


def test_a_dead_letter_is_written_once_for_all_sinks_of_a_query(make_sink: MakeSink, new_topic: Any) -> None:
    """It is in the transaction, if there is one, and is not repeated; otherwise it is written at least once."""
    packed = DeadLetter("orders", "value", "UndecodableRowError", "why", value=b"x").to_bytes()
    letter = Batch.of_letters(binary([packed]))
    upsert = {"form": "upsert", "transactions": False}
    for sinks, copies in (((make_sink(), make_sink(**upsert)), 1), ((make_sink(**upsert), make_sink(**upsert)), 2)):
        one, other = sinks
        query = one.beside(other)
        query.spec = replace(query.spec, dead_letter_topic=new_topic())
        for _ in range(2):
            query.write(letter)
        found = committed(query.spec.kafka, query.spec.dead_letter_topic)
        assert [message.value() for message in found] == [b"x"] * copies
        assert all(
            dict(message.headers())["__connect.errors.task.id"] == query.spec.query.encode() for message in found
        )
        assert not query.messages(other.topic)


def test_an_append_sink_that_is_asked_to_take_back_is_named_among_the_others(make_sink: MakeSink) -> None:
    """The error names the append sink, and no sink gets any row of the batch."""
    query = make_sink().beside(make_sink(form="append"))
    batch = Batch.concat([address(Batch(changes((kind, order(1)))), place) for place, kind in enumerate(("+I", "-D"))])
    wrong = query.spec.sinks[1]
    with pytest.raises(AppendOnlyError, match=f"Sink {wrong.sink}, topic {wrong.topic}"):
        query.write(batch)
    assert not query.messages()


def test_more_messages_than_the_producers_queue_holds_are_all_written(make_sink: MakeSink) -> None:
    """The writer waits while the queue is full."""
    small = make_sink()
    small.spec = replace(small.spec, kafka={**small.spec.kafka, "queue.buffering.max.messages": "100"})
    small.write(changes(*(("+I", order(number)) for number in range(3000))))
    assert [message.row["id"] for message in small.messages()] == list(range(3000))


def test_a_progress_topic_with_too_few_partitions_says_so(make_sink: MakeSink) -> None:
    """A task whose number has no partition cannot record progress; the message says how to add partitions."""
    sink = make_sink()
    with pytest.raises(UnfitTopicError, match=r"has no partition 9\. .*rowkind topics create"):
        sink.write(changes(("+I", order(1))), partition=9)


def test_topics_are_made_on_request_and_checked(broker: Any, new_topic: Any) -> None:
    """Upsert topics are compacted, others are not; existing topics stay, and unsuitable ones are reported."""
    kafka = settings(broker)
    name = new_topic() + "-new"
    wanted = [topics.sink_topic(name, "upsert", 3), topics.progress_topic("job", name, 2)]
    assert topics.create(kafka, wanted) == [topic.name for topic in wanted]
    assert topics.create(kafka, wanted) == []
    assert topics.check(kafka, wanted) == []
    assert len(topics.check(kafka, [topics.sink_topic(name, "retract")])) == 1
    with pytest.raises(UnfitTopicError, match="Add partitions"):
        topics.check(kafka, [topics.progress_topic("job", name, 5)])
    with pytest.raises(topics.MissingTopicError, match=f"No such topic: {name}-x"):
        topics.check(kafka, [topics.sink_topic(f"{name}-x", "append")])
    with pytest.raises(UnfitTopicError, match="eplication"):
        topics.create(kafka, [topics.sink_topic(f"{name}-x", "append", replication=3)])


@pytest.mark.parametrize("ask", [topics.check, lambda kafka, wanted: Cluster(kafka).topics([wanted[0].name])])
def test_a_topic_is_there_that_a_broker_hears_of_a_moment_later(broker: Any, new_topic: Any, ask: Any) -> None:
    """With several brokers, a broker may not know a new topic yet when it is asked."""
    kafka = settings(broker)
    wanted = [topics.sink_topic(new_topic() + "-later", "upsert")]
    later = threading.Timer(0.5, topics.create, (kafka, wanted))
    later.start()
    ask(kafka, wanted)
    later.join()


def test_a_schema_that_present_readers_could_not_read_is_refused(schemas: Any) -> None:
    """The message names the subject and the column; a schema that readers can read becomes the next version."""
    first = topics.register(schemas, "t", topics.Record.of({"id": "BIGINT NOT NULL", "name": "STRING"}), None)
    again = topics.register(schemas, "t", topics.Record.of({"id": "BIGINT NOT NULL", "name": "STRING"}), None)
    wider = topics.register(
        schemas, "t", topics.Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "x": "INT"}), None
    )
    assert first == again
    assert wider.value != first.value
    with pytest.raises(topics.UnfitSubjectError, match=r"t-value.*id"):
        topics.register(schemas, "t", topics.Record.of({"name": "STRING", "x": "INT"}), None)


def test_the_kinds_of_an_update_are_those_of_the_netted_changes(make_sink: MakeSink) -> None:
    """The rows-out counters equal the records in the topic."""
    sink = make_sink()
    task = sink.write(changes(("-D", order(1, "a")), ("+I", order(1, "b")), ("+I", order(2))))
    counted = {name[-4:-2]: count for name, count in task.written.items() if "rows_out" in name}
    assert counted == {"-U": 1, "+U": 1, "+I": 1}
    assert int(np.int8(RowKind.UPDATE_AFTER)) == 2


def _rows_out(counted: Counted, sink: str) -> float:
    return counted.written.get(f'rowkind_rows_out_total{{sink="{sink}",kind="+I"}}', 0)
