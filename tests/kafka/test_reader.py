"""The reader on a real broker: which records a batch has, despite gaps, transactions and retention."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.execute.members import SIDES
from rowkind.service.kafka import fetch
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.errors import (
    LostOffsetsError,
    MissingTopicError,
    ReplacedTopicError,
    RestartedTopicError,
    StalledReadError,
    UnreachableError,
)
from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.machine.ports import free_port
from rowkind.service.physical.graph import GraphScan
from rowkind.service.physical.keys import Key
from rowkind.service.physical.source_table import Start
from tests.kafka.tables import ORDERS, Topic, order, pass_on, planner, read, read_all, scan, settings, way

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("both_readers")]

ON_LOST_SKIPS = ("earliest", "latest")


def test_rows_come_with_their_kinds_values_and_arrival_numbers(orders: Topic) -> None:
    """Each record is a change; its seq is its offset, shifted left by 16 bits for the partition."""
    orders.send(
        (b"+I", order(1, "a", "1.50")), (b"-U", order(1, "a", "1.50")), (b"+U", order(1, "b")), (b"-D", order(1))
    )
    result = read_all(orders.spec())
    assert result.rows() == [
        ("+I", order(1, "a", "1.50")),
        ("-U", order(1, "a", "1.50")),
        ("+U", order(1, "b")),
        ("-D", order(1)),
    ]
    assert sorted(result.changes.seq.tolist()) == [0, 1 << 16, 2 << 16, 3 << 16]
    assert result.letters == []


def test_batches_go_on_where_the_last_one_ended(orders: Topic) -> None:
    """The end of a batch is the start of the next one, and without new records the offset does not change."""
    orders.send(*((b"+I", order(i)) for i in range(10)))
    plan = planner(orders.spec())
    first = plan.end(plan.initial(), 4)
    second = plan.end(Offset.from_json(first.to_json()), 100)
    assert read(orders.spec(), plan.tasks(plan.initial(), first)).ids() == [0, 1, 2, 3]
    assert read(orders.spec(), plan.tasks(first, second)).ids() == [4, 5, 6, 7, 8, 9]
    assert plan.end(second, 100) is second


def test_a_batch_takes_from_each_partition_in_proportion_to_its_lag(
    broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry
) -> None:
    """The row limit applies to all partitions together, and the partition with more unread records gives more."""
    topic = Topic(new_topic(2), broker, schemas)
    topic.send(*((b"+I", order(i)) for i in range(60)), partition=0)
    topic.send(*((b"+I", order(i)) for i in range(20)), partition=1)
    plan = planner(topic.spec(scan(topic.name, mode="append")))
    assert plan.end(plan.initial(), 40).at == {(topic.name, 0): 30, (topic.name, 1): 10}


def test_a_new_partition_is_read_from_its_beginning(orders: Topic, admin: AdminClient) -> None:
    """A partition added while the query runs is in the next batch, with all its records."""
    orders.send((b"+I", order(1)))
    plan = planner(orders.spec())
    first = plan.end(plan.initial(), None)
    admin.create_partitions([NewPartitions(orders.name, 2)])[orders.name].result()
    _until(lambda: len(admin.list_topics(orders.name, timeout=10).topics[orders.name].partitions) == 2)
    orders.send((b"+I", order(2)), (b"+I", order(3)), partition=1)
    second = plan.end(first, None)
    assert second.at == {(orders.name, 0): 1, (orders.name, 1): 2}
    assert read(orders.spec(), plan.tasks(first, second)).ids() == [2, 3]


def test_offsets_that_transactions_left_unused_are_no_records_to_wait_for(orders: Topic) -> None:
    """Markers and aborted records take offsets; the read still ends, and skips aborted records."""
    producer = Producer({**settings(orders.broker), "transactional.id": orders.name})
    producer.init_transactions(20)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        orders.send((b"+I", order(number)), producer=producer)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush(20)
            producer.abort_transaction()
    plan = planner(orders.spec())
    end = plan.end(plan.initial(), None)
    assert end.at[orders.name, 0] == 8
    assert read(orders.spec(), plan.tasks(plan.initial(), end)).ids() == [0, 2]


def test_records_of_an_open_transaction_wait_until_it_ends(orders: Topic) -> None:
    """A batch ends at the last stable offset, even if later records are already committed."""
    orders.send((b"+I", order(1)))
    open_one = Producer({**settings(orders.broker), "transactional.id": orders.name})
    open_one.init_transactions(20)
    open_one.begin_transaction()
    orders.send((b"+I", order(2)), producer=open_one)
    open_one.flush(20)
    orders.send((b"+I", order(3)))
    plan = planner(orders.spec())
    first = plan.end(plan.initial(), None)
    assert first.at[orders.name, 0] == 1
    open_one.commit_transaction()
    _until(lambda: plan.end(first, None).at[orders.name, 0] == 4)
    assert read(orders.spec(), plan.tasks(first, plan.end(first, None))).ids() == [2, 3]


def test_records_that_compaction_took_out_are_not_waited_for(
    broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry
) -> None:
    """A compacted topic whose old records are gone is read to its end, across the gaps."""
    name = new_topic(
        1, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=100
    )
    topic = Topic(name, broker, schemas)

    def compacted() -> bool:
        # Kafka compacts only closed segments, and closes a segment when a record arrives after the segment's time.
        topic.send((b"+I", order(1)))
        return len(read_all(topic.spec()).ids()) < _end(topic)

    for number in range(20):
        topic.send((b"+I", order(number % 3)))
    _until(compacted, seconds=60)
    assert sorted(set(read_all(topic.spec()).ids())) == [0, 1, 2]


@pytest.mark.parametrize("policy", ["fail", *ON_LOST_SKIPS])
def test_a_start_that_retention_has_eaten_is_an_error_or_the_reset_that_the_job_says(
    orders: Topic, admin: AdminClient, policy: str
) -> None:
    """With `fail`, the error names topic, partition and both offsets; otherwise reading continues as configured."""
    orders.send(*((b"+I", order(i)) for i in range(6)))
    spec = orders.spec(scan(orders.name, start=Start(on_lost=policy)))
    checkpoint = planner(spec).end(planner(spec).initial(), 2)
    admin.delete_records([TopicPartition(orders.name, 0, 4)])[TopicPartition(orders.name, 0)].result()
    plan = planner(spec)
    if policy == "fail":
        with pytest.raises(
            LostOffsetsError, match=rf"{orders.name}, partition 0: the next offset to be read is 2, .* offset 4"
        ) as lost:
            plan.end(checkpoint, None)
        assert (lost.value.topic, lost.value.partition, lost.value.wanted, lost.value.earliest) == (
            orders.name,
            0,
            2,
            4,
        )
        return
    orders.send((b"+I", order(6)))
    end = plan.end(checkpoint, None)
    if policy == "latest":
        assert end.at == {(orders.name, 0): 7}
        orders.send((b"+I", order(7)))
        assert read(spec, plan.tasks(end, plan.end(end, None))).ids() == [7]
    else:
        assert read(spec, plan.tasks(checkpoint, end)).ids() == [4, 5, 6]


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_retention_that_overtakes_a_task_is_noticed_by_the_task(orders: Topic, admin: AdminClient, policy: str) -> None:
    """A range whose beginning is deleted after planning fails, or is read from the records that are left."""
    orders.send(*((b"+I", order(i)) for i in range(6)))
    admin.delete_records([TopicPartition(orders.name, 0, 4)])[TopicPartition(orders.name, 0)].result()
    spec = orders.spec(scan(orders.name, start=Start(on_lost=policy)))
    task = [Range(orders.name, 0, 1, 6)]
    if policy == "fail":
        with pytest.raises(LostOffsetsError, match="the next offset to be read is 1,"):
            read(spec, [task])
    else:
        assert read(spec, [task]).ids() == [4, 5]


def test_each_start_begins_where_it_says(orders: Topic) -> None:
    """Reading starts at the earliest or latest offset, at a time, or at given offsets."""
    orders.send((b"+I", order(0)), (b"+I", order(1)))
    between = int(time.time() * 1000) + 1000
    producer = Producer(settings(orders.broker))
    producer.produce(orders.name, orders.value(order(2)), headers=[("op", b"+I")], timestamp=between + 1000)
    producer.flush(20)
    starts = [
        (Start(), 0),
        (Start("latest"), 3),
        (Start("timestamp", timestamp_ms=between), 2),
        (Start("timestamp", timestamp_ms=between + 60_000), 3),
        (Start("offsets", offsets={0: 1}), 1),
    ]
    for start, offset in starts:
        assert planner(orders.spec(scan(orders.name, start=start))).initial().at == {(orders.name, 0): offset}


def test_a_first_batch_that_is_read_again_begins_where_it_began(orders: Topic) -> None:
    """A crash before the first commit must not move a start that depends on the clock; the end offset records it."""
    orders.send((b"+I", order(0)))
    spec = orders.spec(scan(orders.name, start=Start("latest")))
    plan = planner(spec)
    start = plan.initial()
    orders.send((b"+I", order(1)), (b"+I", order(2)))
    logged = plan.end(start, None).to_json()
    restarted = planner(spec)
    begin_anew = restarted.initial()
    assert begin_anew.at == {(orders.name, 0): 3}
    assert read(spec, restarted.tasks(begin_anew, Offset.from_json(logged))).ids() == [1, 2]


def test_a_topic_that_was_made_anew_is_noticed(orders: Topic, admin: AdminClient) -> None:
    """The checkpoint's offsets are invalid in another topic of the same name, so the job refuses to continue."""
    orders.send((b"+I", order(1)), (b"+I", order(2)))
    spec = orders.spec()
    checkpoint = planner(spec).end(planner(spec).initial(), None)
    admin.delete_topics([orders.name])[orders.name].result()
    _until(lambda: orders.name not in admin.list_topics(timeout=10).topics)
    with pytest.raises(MissingTopicError, match=orders.name):
        planner(spec).end(checkpoint, None)
    admin.create_topics([NewTopic(orders.name, 1, 1)])[orders.name].result()
    _until(lambda: orders.name in admin.list_topics(timeout=10).topics)
    with pytest.raises(ReplacedTopicError, match="reset-state"):
        planner(spec).end(checkpoint, None)
    restarted = orders.spec(scan(orders.name, start=Start(on_recreated="restart")))
    with pytest.raises(RestartedTopicError, match="The table has `on_recreated: restart`"):
        planner(restarted).end(checkpoint, None)


def test_available_now_stops_at_the_ends_of_its_start(orders: Topic) -> None:
    """Later records are left for the next run."""
    orders.send((b"+I", order(1)))
    plan = planner(orders.spec())
    start = plan.initial()
    plan.stop_at_now()
    orders.send((b"+I", order(2)))
    end = plan.end(start, None)
    assert end.at == {(orders.name, 0): 1}
    assert plan.end(end, None) is end


def test_a_task_may_read_several_topics_and_a_piece_of_a_partition(
    broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry
) -> None:
    """Ranges are exact at both ends, even if the consumer has fetched more of the partitions."""
    one, other = (Topic(new_topic(2), broker, schemas) for _ in range(2))
    for topic, first in ((one, 0), (other, 1000)):
        for partition in (0, 1):
            topic.send(*((b"+I", order(first + 100 * partition + i)) for i in range(50)), partition=partition)
    spec = one.spec(scan(one.name), scan(other.name, table="others", calc=pass_on(ORDERS, side=1)))
    result = read(spec, [[Range(one.name, 0, 10, 12), Range(one.name, 1, 48, 50), Range(other.name, 1, 0, 3)]])
    assert sorted(result.ids()) == [10, 11, 148, 149, 1100, 1101, 1102]
    assert sorted(result.changes.side.tolist()) == [0, 0, 0, 0, 1, 1, 1]


def test_a_self_join_consumes_its_topic_once(orders: Topic) -> None:
    """Two scans of one table give each row to both sides, but count it once and make one dead letter."""
    orders.send((b"+I", order(1)), (b"??", order(2)))
    left, right = (scan(orders.name, calc=pass_on(ORDERS, side=side)) for side in (0, 1))
    result = read_all(orders.spec(left, right))
    assert sorted(zip(result.changes.side.tolist(), result.ids(), strict=True)) == [(0, 1), (1, 1)]
    assert len(result.letters) == 1
    assert result.counters['rowkind_rows_in_total{table="orders",kind="+I"}'] == 1
    assert result.counters['rowkind_dead_letters_total{table="orders",reason="row kind"}'] == 1


def test_the_first_batch_of_an_empty_topic_is_a_block_for_whoever_waits_for_one(orders: Topic) -> None:
    """A source with `opens` starts with one empty batch, with a block for each level that needs one."""
    spec = orders.spec(opens=((1, 1), (1, 3)), labels=(7, 9))
    plan = planner(spec)
    start = Offset.from_json(plan.initial().to_json())
    first = plan.end(start, 100)
    assert first.to_json() != start.to_json()
    result = read(spec, plan.tasks(start, first), opens=plan.opens_with(start))
    assert [(label, level, len(block.changes)) for label, level, block in result.blocks] == [(9, 1, 0), (9, 3, 0)]
    assert plan.end(first, 100) is first
    assert not plan.opens_with(first)
    assert read(orders.spec(), plan.tasks(start, first)).blocks == []


def test_a_first_batch_that_has_rows_opens_as_well(orders: Topic) -> None:
    """Levels that need a block without rows get it in the first batch only, even if that batch has rows."""
    orders.send((b"+I", order(1)))
    spec = orders.spec(opens=((0, 2),))
    plan = planner(spec)
    first = plan.end(plan.initial(), None)
    assert plan.opens_with(plan.initial())
    result = read(spec, plan.tasks(plan.initial(), first), opens=True)
    assert [(level, len(block.changes)) for _, level, block in result.blocks] == [(2, 0), (1, 1)]
    orders.send((b"+I", order(2)))
    assert not plan.opens_with(first)
    assert read(spec, plan.tasks(first, plan.end(first, None))).ids() == [2]


def test_a_table_is_decoded_once_for_all_who_read_it(orders: Topic) -> None:
    """Each consumer gets the rows under its own address and level; a constant-key consumer gets them in every shard."""
    orders.send((b"+I", order(1)))
    one = scan(orders.name, calc=pass_on(ORDERS, side=1))
    fact = scan(orders.name, calc=replace(one.calc, key=Key(constant=b"not empty"), side=2))
    table = GraphScan(one, (way(one, to=1), way(fact), way(one, to=2, level=3)))
    spec = replace(orders.spec(), scans=(table,), labels=(0, 1, 2), writer=4)
    result = read_all(spec)
    found = sorted(
        (level, side, label) for label, level, block in result.blocks for side in block.changes.side.tolist()
    )
    (home,) = {label for level, _, label in found if level == 3}
    assert found == [(1, 2, 0), (1, 2, 1), (1, 2, 2), (1, SIDES + 1, home), (3, 2 * SIDES + 1, home)]
    assert result.counters['rowkind_rows_in_total{table="orders",kind="+I"}'] == 1


def test_dead_letters_go_straight_to_the_writer(orders: Topic) -> None:
    """There is one dead letter, at the writer's level, however many scans read the table at whatever levels."""
    orders.send((b"??", order(1)), (b"+I", order(2)))
    one = scan(orders.name)
    spec = replace(orders.spec(), scans=(GraphScan(one, (way(one), way(one, to=1, level=2))),), writer=3)
    result = read_all(spec)
    assert len(result.letters) == 1
    sent = {level: (len(block.changes), len(block.batch.letters)) for _, level, block in result.blocks}
    assert sent == {1: (1, 0), 2: (1, 0), 3: (0, 1)}


def test_partitions_that_are_not_shuffled_stay_whole(
    broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry
) -> None:
    """One task then reads a partition's whole batch; otherwise a long partition is divided between tasks."""
    topic = Topic(new_topic(2), broker, schemas)
    topic.send(*((b"+I", order(i)) for i in range(40)), partition=0)
    topic.send(*((b"+I", order(i)) for i in range(4)), partition=1)
    for whole, longest in ((True, 40), (False, 22)):
        spec = topic.spec(scan(topic.name, mode="append"), rows_per_task=1, whole_partitions=whole)
        plan = planner(spec)
        begin = plan.initial()
        tasks = plan.tasks(begin, plan.end(begin, None))
        assert max(sum(map(len, task)) for task in tasks) == longest


def test_rows_go_to_the_shard_of_their_hash_under_its_label(orders: Topic) -> None:
    """A block has rows of one shard, and carries the label that the placement assigns to it."""
    orders.send(*((b"+I", order(i)) for i in range(50)))
    labels = (7, 3, 12)
    result = read_all(orders.spec(labels=labels))
    assert {label for label, _, _ in result.blocks} == set(labels)
    for label, _, block in result.blocks:
        assert {labels[hash_ % 3] for hash_ in block.changes.hash.tolist()} == {label}


def test_an_unreachable_broker_is_a_message_within_seconds() -> None:
    """The message names the address that was tried, and says what to check."""
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127.0.0.1:1: .*refused.* Check that Kafka is running"):
        cluster.topics(["orders"])
    assert time.monotonic() - started < 15


def test_a_missing_topic_is_named_with_what_makes_it(broker: Broker) -> None:
    """The message names the topic and the command that creates it."""
    with pytest.raises(MissingTopicError, match=r"Topic nowhere does not exist.*rowkind topics create"):
        Cluster(settings(broker)).topics(["nowhere"])


def _end(topic: Topic) -> int:
    return Cluster(settings(topic.broker)).ends([(topic.name, 0)])[topic.name, 0]


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)


def test_announced_records_that_do_not_come_are_an_error_with_the_place(
    orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read never waits indefinitely: the message names topic, partition and the current offset."""
    orders.send((b"+I", order(1)))
    monkeypatch.setattr(fetch, "_STALL_SECONDS", 1.0)
    with pytest.raises(StalledReadError, match=f"{orders.name}, partition 0: no record .* at offset 1, .* offset 9"):
        read(orders.spec(), [[Range(orders.name, 0, 0, 9)]])


def test_a_read_without_brokers_gives_up_as_soon_as_other_questions_do(
    orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark retries a task three times, so a long wait in each attempt would delay the report of the outage."""
    monkeypatch.setattr(fetch, "ANSWER_SECONDS", 0.2)
    spec = replace(orders.spec(), kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    with pytest.raises(UnreachableError, match=f"reading topic {orders.name}, partition 0: no answer"):
        read(spec, [[Range(orders.name, 0, 0, 9)]])
