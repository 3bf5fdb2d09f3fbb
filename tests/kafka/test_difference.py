"""The difference between two topics is written to one of them.

It then folds to the same rows, and nothing else changes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from rowkind.avro.framing import frame
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import binary
from rowkind.service.checkpoint.difference import write_difference
from rowkind.service.kafka.errors import AppendOnlyError, UnfitTopicError
from rowkind.service.kafka.sink_formats import AsAvro
from rowkind.service.kafka.spec import WriterSpec
from tests.kafka.sinks import MakeSink, Sink, changes, committed
from tests.kafka.tables import ORDERS, order, packed

pytestmark = pytest.mark.kafka

WIDER = Record.of({**{each.name: each.type.sql for each in ORDERS.fields}, "note": "STRING"}, name="Order")
BringTo = Callable[[Sink, Sink], int]
SIGNS = {b"+I": 1, b"+U": 1, b"-U": -1, b"-D": -1}


@pytest.fixture
def bring_to(schemas: FolderRegistry) -> BringTo:
    """Return a function that writes the difference to the first sink's topic.

    It returns how many records it has written.
    """

    def write(old: Sink, new: Sink) -> int:
        written = write_difference(old.spec, {old.of.sink: new.topic}, old.spec.transactional_id(0), schemas)
        return written[old.of.sink]

    return write


def test_of_a_retract_topic_with_a_key_only_what_differs_is_written(make_sink: MakeSink, bring_to: BringTo) -> None:
    """Only rows that differ are written; an old row is retracted just before the new row of its key, as one update."""
    old, new = make_sink(), make_sink()
    old.write(changes(("+I", order(1, "a")), ("+I", order(2, "b")), ("+I", order(3, "c"))))
    new.write(changes(("+I", order(1, "x")), ("+I", order(4, "d"))))
    new.write(changes(("-U", order(1, "x")), ("+U", order(1, "a")), ("+I", order(3, "C"))), batch=1)
    before = len(old.messages())
    assert bring_to(old, new) == 4
    written = [(kind, row["id"], row["name"]) for kind, row in old.ops()[before:]]
    assert sorted(written) == [("+I", 4, "d"), ("+U", 3, "C"), ("-D", 2, "b"), ("-U", 3, "c")]
    assert written.index(("-U", 3, "c")) + 1 == written.index(("+U", 3, "C"))
    assert bring_to(old, new) == 0


def test_of_an_upsert_topic_keys_that_are_gone_get_a_tombstone(make_sink: MakeSink, bring_to: BringTo) -> None:
    """A key that has the right value is not written again, even if it had another value in between."""
    old, new = make_sink(form="upsert"), make_sink(form="upsert")
    old.write(changes(*(("+I", order(number, "a")) for number in range(1, 5))))
    old.write(changes(("-D", order(4, "a"))), batch=1)
    new.write(changes(("+I", order(1, "a")), ("+I", order(2, "x")), ("+I", order(5, "n"))))
    before = len(old.messages())
    assert bring_to(old, new) == 3
    written = {message.key: message.row and message.row["name"] for message in old.messages()[before:]}
    assert written == {2: "x", 3: None, 5: "n"}


def test_of_an_append_topic_nothing_can_be_taken_back(make_sink: MakeSink, bring_to: BringTo) -> None:
    """Missing rows are added; if the topic has too many rows, the write is refused and nothing is written."""
    old, new = (make_sink(form="append", keyed=False, key=None) for _ in range(2))
    old.write(changes(("+I", order(1))))
    new.write(changes(("+I", order(1)), ("+I", order(2))))
    assert bring_to(old, new) == 1
    assert [row["id"] for _, row in old.ops()] == [1, 2]
    old.write(changes(("+I", order(3))), batch=1)
    with pytest.raises(AppendOnlyError, match="another topic"):
        bring_to(old, new)
    assert len(old.ops()) == 3


def test_rows_of_another_schema_are_compared_by_what_they_say(
    make_sink: MakeSink, bring_to: BringTo, schemas: FolderRegistry
) -> None:
    """A row that only lacks a NULL column stays; a row that differs is retracted with its original bytes."""
    old, new = make_sink(keyed=False, key=None), make_sink()
    wider = schemas.register(f"{old.topic}-value", WIDER)
    rows = [order(1) | {"note": None}, order(2) | {"note": "new"}]
    put(old, *(frame(old.of.value.schema, binary(packed(ORDERS, [row])))[0].as_py() for row in rows))
    put(new, *(frame(wider, binary(packed(WIDER, [row])))[0].as_py() for row in rows))
    now = Sink(replace(old.spec, sinks={0: replace(old.of, value=AsAvro(wider))}))
    assert bring_to(now, new) == 2
    messages = [(message.headers()[0][1], message.value()) for message in committed(old.spec.kafka, old.topic)]
    (_, first), (_, second), *written = messages
    assert written == [(b"-D", second), (b"+I", frame(wider, binary(packed(WIDER, rows[1:])))[0].as_py())]
    assert first != second


def put(sink: Sink, *values: bytes) -> None:
    """Send inserts of framed rows."""
    producer = Producer(dict(sink.spec.kafka))
    for value in values:
        producer.produce(sink.topic, value, headers=[("op", b"+I")])
    assert producer.flush(20) == 0


@pytest.mark.parametrize(("before", "now"), [("retract", "upsert"), ("upsert", "retract")])
def test_a_topic_that_was_written_in_another_mode_is_refused(
    make_sink: MakeSink, bring_to: BringTo, before: str, now: str
) -> None:
    """The records of a topic in another mode would have another meaning, so it is refused."""
    old, new = make_sink(form=before), make_sink(form=now)
    for sink in (old, new):
        sink.write(changes(("+I", order(1))))
    (same,) = new.spec.sinks.values()
    with pytest.raises(UnfitTopicError, match=f"in its mode, {now}"):
        bring_to(Sink(replace(new.spec, sinks={0: replace(same, topic=old.topic)})), new)
    assert len(old.messages()) == 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("form", ["retract", "upsert", "rows"])
def test_random_topics_fold_to_the_same_rows(make_sink: MakeSink, bring_to: BringTo, form: str, seed: int) -> None:
    """The topics have several partitions, an aborted transaction, and duplicates if there is no key."""
    chance = random.Random(seed)
    settings: dict[str, Any] = {"partitions": 3, "form": "retract" if form == "rows" else form}
    if form == "rows":
        settings |= {"keyed": False, "key": None}
    old, new = make_sink(**settings), make_sink(**settings)
    for sink in (old, new):
        write_random(chance, sink, keyed=form != "rows")
    abort(old, new.of.topic)
    bring_to(old, new)
    assert fold(old.spec, old.topic, form) == fold(new.spec, new.topic, form), f"seed {seed}"
    assert bring_to(old, new) == 0


def write_random(chance: random.Random, sink: Sink, *, keyed: bool) -> None:
    """Write three batches of random changes."""
    live: Counter[tuple[int, str]] = Counter()
    for batch in range(3):
        made = []
        for _ in range(chance.randrange(1, 12)):
            number, name = chance.randrange(6), chance.choice("ab")
            present = [row for row in live.elements() if not keyed or row[0] == number]
            if present and (keyed or chance.random() < 0.4):
                gone = chance.choice(present)
                live[gone] -= 1
                made.append(("-D", order(*gone)))
            if not keyed or chance.random() < 0.7:
                live[number, name] += 1
                made.append(("+I", order(number, name)))
        if made:
            sink.write(changes(*made), batch=batch)


def abort(sink: Sink, name: str) -> None:
    """Abort a transaction on the sink's topic."""
    producer = Producer({**sink.spec.kafka, "transactional.id": f"aborted-{name}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(sink.topic, b"nothing", b"nothing")
    producer.flush(20)
    producer.abort_transaction(20)


def fold(spec: WriterSpec, topic: str, form: str) -> Counter[tuple[bytes | None, bytes]]:
    """Return the rows that a topic folds to, without their schema ids."""
    rows: Counter[tuple[bytes | None, bytes]] = Counter()
    last: dict[bytes | None, bytes | None] = {}
    for message in committed(spec.kafka, topic):
        key = None if message.key() is None else message.key()[5:]
        if form == "upsert":
            last[key] = None if message.value() is None else message.value()[5:]
        else:
            rows[key, message.value()[5:]] += SIGNS[message.headers()[0][1]]
            assert rows[key, message.value()[5:]] >= 0, "a row was taken back that was not there"
    if form == "upsert":
        return Counter((key, value) for key, value in last.items() if value is not None)
    return +rows
