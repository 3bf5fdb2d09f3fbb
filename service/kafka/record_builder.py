"""Turn one task's changes into Kafka messages: framed keys and values, row kind headers, partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from rowkind.operators.changelog import SYMBOLS, RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int8s
from rowkind.operators.columns.emission import RetractionError, net
from rowkind.operators.columns.hashing import hash64
from rowkind.service.execute.members import addressed
from rowkind.service.execute.metrics import sample
from rowkind.service.kafka.client_columns import produce
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.errors import AppendOnlyError
from rowkind.service.kafka.spec import SinkSpec, WriterSpec
from rowkind.service.kafka.written_sample import SampledRows, WrittenSample, last_rows
from rowkind.service.physical.row_kind import spellings

_ROOM_SECONDS = 0.1


@dataclass(frozen=True)
class Messages:
    """Net changes of one sink, ready to be sent in this order.

    `values` has nulls for tombstones, `kinds` the ordinals of row kinds. `spread` is set if messages have no key: each
    row's hash determines its partition, so that a row and its later retraction are in the same partition. `last`: the
    last rows, as a sample.
    """

    sink: SinkSpec
    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    kinds: Int8s
    spread: npt.NDArray[np.uint64] | None
    last: SampledRows


@dataclass(frozen=True)
class RecordBuilder:
    """Everything that one task sends with the same delivery guarantee: the messages of some sinks, and dead letters."""

    messages: Sequence[Messages]
    letters: Sequence[DeadLetter]
    counters: Mapping[str, float]

    def __len__(self) -> int:
        return sum(len(each.values) for each in self.messages) + len(self.letters)

    @property
    def sample(self) -> WrittenSample:
        """A sample of the messages and dead letters, for the status page."""
        found = WrittenSample({each.sink.sink: each.last for each in self.messages})
        found.add_letters(self.letters)
        return found

    @property
    def topics(self) -> list[str]:
        """The result topics of the messages."""
        return [each.sink.topic for each in self.messages]


def prepare(spec: WriterSpec, batch: Batch) -> tuple[RecordBuilder, RecordBuilder]:
    """Net and frame a batch's changes. Return the records to send exactly once, and those to send at least once.

    If any sink has transactions, dead letters are sent in them too. Raises AppendOnlyError.
    """
    letters = [DeadLetter.from_bytes(payload) for payload in batch.letters.to_pylist()]
    ways: dict[bool, list[Messages]] = {True: [], False: []}
    counters: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for place, sink in spec.sinks.items():
        own = addressed(batch, place).changes
        if len(own):
            ways[sink.transactions].append(_messages(sink, own, counters[sink.transactions]))
    if letters:
        counted = sample("rowkind_dead_letters_written_total", query=spec.query)
        counters[spec.transactions][counted] = float(len(letters))
    once, repeatable = (
        RecordBuilder(ways[way], letters if way == spec.transactions else (), counters[way]) for way in (True, False)
    )
    return once, repeatable


def _messages(sink: SinkSpec, changes: Changes, counters: dict[str, float]) -> Messages:
    """Return the net changes of one sink as messages, and count them."""
    try:
        changes = net(changes, sink.form, keyed=sink.keyed, by_seq=sink.by_seq, ordered=sink.ordered)
    except RetractionError:
        raise AppendOnlyError(
            f"Sink {sink.sink}, topic {sink.topic}: the query retracts a row, but the sink has mode append, which "
            f"allows insertions only. Use mode retract or upsert."
        ) from None
    values = sink.value(changes.payload)
    if sink.form == "upsert":
        values = pc.if_else(pa.array(changes.kind == RowKind.DELETE), pa.scalar(None, pa.binary()), values)
    keys = spread = None
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    if sink.keyed:
        assert sink.key is not None, "a keyed sink has a key format"
        keys = sink.key(changes.key)
        size += pc.sum(pc.binary_length(keys)).as_py() or 0
    else:
        spread = hash64(changes.payload)
    if size:
        counters[sample("rowkind_bytes_out_total", sink=sink.sink)] = float(size)
    counters |= rows_out(sink.sink, changes)
    return Messages(sink, keys, values, changes.kind, spread, last_rows(changes))


def rows_out(sink: str, changes: Changes) -> dict[str, float]:
    """Return the counters of a sink's changes, by row kind."""
    counts = np.bincount(changes.kind, minlength=len(SYMBOLS)).tolist()
    return {
        sample("rowkind_rows_out_total", sink=sink, kind=symbol): float(count)
        for symbol, count in zip(SYMBOLS, counts, strict=True)
        if count
    }


def send(
    producer: Producer, spec: WriterSpec, outgoing: RecordBuilder, partitions: Mapping[str, int], *, reported: bool
) -> None:
    """Hand every message to the producer, waiting while the producer's queue is full. Raises KafkaException.

    `partitions`: the number of partitions of each topic. `reported`: the producer reports each message that could not
    be delivered, instead of failing as a whole.
    """
    for each in outgoing.messages:
        _send(producer, each, partitions[each.sink.topic], reported=reported)
    for letter in outgoing.letters:
        _send_letter(producer, spec, letter)


def _send(producer: Producer, messages: Messages, partitions: int, *, reported: bool) -> None:
    header, places = messages.sink.row_kind, None
    words: Sequence[bytes] = () if header is None else spellings(header.values)
    if messages.spread is not None:
        places = (messages.spread % np.uint64(partitions)).astype(np.int32)
    if not reported:
        named = None if header is None else (header.header, words, messages.kinds)
        if produce(producer, messages.sink.topic, messages.values, messages.keys, places, named):
            return
    headers: Sequence[Any] = [None] * 4 if header is None else [[(header.header, word)] for word in words]
    rows = zip(
        repeat(None) if messages.keys is None else messages.keys.to_pylist(),
        repeat(-1) if places is None else places.tolist(),
        messages.values.to_pylist(),
        messages.kinds.tolist(),
        strict=False,
    )
    for key, place, value, kind in rows:
        # All arguments are positional, because a single keyword argument costs half as much as the call itself. For the
        # same reason, there is no callback and no timestamp.
        push(producer, messages.sink.topic, value, key, place, None, None, 0, headers[kind])


def push(producer: Producer, *message: Any, **more: Any) -> None:
    """Hand one message to the producer, waiting while the producer's queue is full. Raises KafkaException."""
    while True:
        try:
            producer.produce(*message, **more)
        except BufferError:
            producer.poll(_ROOM_SECONDS)
        else:
            return


def _send_letter(producer: Producer, spec: WriterSpec, letter: DeadLetter) -> None:
    assert spec.dead_letter_topic is not None, "only a job with a dead letter topic makes dead letters"
    # The dead letter has the current time. With the original time, retention could delete it before it is seen.
    headers = letter.written_headers(spec.job, spec.query)
    push(producer, spec.dead_letter_topic, letter.value, letter.key, headers=headers)
