"""One task's changes as Kafka messages: framed keys and values, row kind headers, partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from rowkind.avro.framing import frame
from rowkind.operators.columns.changes import SYMBOLS, Changes, RowKind
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.emission import RetractionError, net
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.errors import AppendOnlyError
from rowkind.service.kafka.spec import SinkSpec
from rowkind.service.metrics import sample
from rowkind.service.row_kind import spellings

_ROOM_SECONDS = 0.1


@dataclass(frozen=True)
class Outgoing:
    """Net changes, ready to be sent in their order, and dead letters.

    `values` has None for a tombstone. `spread` is there where messages have no key: the hash of each row, which places
    it, so that a row and its later retraction are in one partition.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    kinds: Sequence[int]
    spread: npt.NDArray[np.uint64] | None
    letters: Sequence[DeadLetter]
    counters: dict[str, float]

    def __len__(self) -> int:
        return len(self.values) + len(self.letters)


def prepare(spec: SinkSpec, changes: Changes) -> Outgoing:
    """Take the dead letters out, net the rest, and frame keys and values. Raises AppendOnlyError."""
    dead = changes.kind == RowKind.DEAD_LETTER
    letters = [DeadLetter.from_bytes(payload) for payload in changes.payload.filter(pa.array(dead)).to_pylist()]
    try:
        changes = net(changes.filter(~dead), spec.form, keyed=spec.keyed, by_seq=spec.by_seq)
    except RetractionError:
        raise AppendOnlyError(
            f"Sink {spec.sink}, topic {spec.topic}: a row was to be taken back, but the topic takes insertions only. "
            f"Give the sink the mode retract or upsert."
        ) from None
    values = frame(spec.value_schema, changes.payload)
    if spec.form == "upsert":
        values = pc.if_else(pa.array(changes.kind == RowKind.DELETE), pa.scalar(None, pa.binary()), values)
    keys: Sequence[bytes | None] = [None] * len(changes)
    spread = None
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    if spec.keyed:
        assert spec.key_schema is not None, "a keyed topic has a schema for its key"
        framed = frame(spec.key_schema, changes.key)
        keys = framed.to_pylist()
        size += pc.sum(pc.binary_length(framed)).as_py() or 0
    else:
        spread = hash64(changes.payload)
    counters = {sample("rowkind_bytes_out_total", sink=spec.sink): float(size)} if size else {}
    for kind, count in enumerate(np.bincount(changes.kind, minlength=len(SYMBOLS))):
        if count:
            counters[sample("rowkind_rows_out_total", sink=spec.sink, kind=SYMBOLS[kind])] = float(count)
    if letters:
        counters[sample("rowkind_dead_letters_written_total", sink=spec.sink)] = float(len(letters))
    return Outgoing(keys, values.to_pylist(), changes.kind.tolist(), spread, letters, counters)


def send(producer: Producer, spec: SinkSpec, outgoing: Outgoing, partitions: int) -> None:
    """Hand every message to the producer, waiting where its queue is full. Raises KafkaException."""
    header = spec.row_kind
    headers: Sequence[Any] = [None] * 4
    if header is not None:
        headers = [[(header.header, word)] for word in spellings(header.values)]
    produce, topic = producer.produce, spec.topic
    places: Iterable[int] = repeat(-1, len(outgoing.values))
    if outgoing.spread is not None:
        places = (outgoing.spread % np.uint64(partitions)).tolist()
    for key, value, kind, place in zip(outgoing.keys, outgoing.values, outgoing.kinds, places, strict=True):
        while True:
            try:
                # By position, with no callbacks and no time of its own: one keyword takes as long as half the call.
                produce(topic, value, key, place, None, None, 0, headers[kind])
                break
            except BufferError:
                producer.poll(_ROOM_SECONDS)
    for letter in outgoing.letters:
        _send_letter(producer, spec, letter)


def push(producer: Producer, *message: Any, **more: Any) -> None:
    """Hand one message to the producer, waiting where its queue is full. Raises KafkaException."""
    while True:
        try:
            producer.produce(*message, **more)
        except BufferError:
            producer.poll(_ROOM_SECONDS)
        else:
            return


def _send_letter(producer: Producer, spec: SinkSpec, letter: DeadLetter) -> None:
    assert spec.dead_letter_topic is not None, "only a job with a dead letter topic makes dead letters"
    timestamp = int(time.time() * 1000) if letter.timestamp is None else letter.timestamp
    headers = letter.written_headers(spec.job, spec.sink)
    push(producer, spec.dead_letter_topic, letter.value, letter.key, timestamp=timestamp, headers=headers)
