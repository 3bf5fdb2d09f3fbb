"""A job's dead letters: lists them, shows one, and sends its original record back to the source topic.

A dead letter is identified by its position in the dead letter topic, `partition:offset`. A replay is recorded in the
same topic, by a later record without key or value, whose header `rowkind.replayed` contains this position. The same
transaction sends this record and the original. So an original is sent back only once, even if several processes try to
send it or a replay fails midway.

An operator's dead letter contains a row as JSON. If the dead letter identifies the row's source record, that record is
sent back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from rowkind.avro import codec
from rowkind.avro.errors import AvroError
from rowkind.avro.framing import split
from rowkind.avro.json_rows import decode
from rowkind.avro.registry import Registry
from rowkind.avro.time_text import PER_SECOND, moment_text
from rowkind.service.job.model import Job
from rowkind.service.kafka.clients import ANSWER_SECONDS, KafkaSettings, servers, transactional_settings
from rowkind.service.kafka.committed_records import committed, record_at
from rowkind.service.kafka.dead_letter import PREFIX, READING
from rowkind.service.kafka.errors import translate
from rowkind.service.kafka.record import OneRecord
from rowkind.service.kafka.record_builder import push
from rowkind.service.query.errors import LetterError

_REPLAYED = "rowkind.replayed"
_TRANSACTION_MS = 60_000
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Letter:
    """A dead letter, read from its topic. `told`: its Connect headers, by name without the prefix.

    `record` contains only the headers that the original record had.
    """

    record: OneRecord
    told: Mapping[str, str]
    replayed: bool = False

    @property
    def place(self) -> str:
        """The dead letter's position in its topic, `partition:offset`."""
        return f"{self.record.partition}:{self.record.offset}"

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """The topic, partition and offset of the dead letter's source record, or None if it has no source record."""
        if "topic" not in self.told:
            return None
        return self.told["topic"], int(self.told["partition"]), int(self.told["offset"])

    @property
    def summary(self) -> dict[str, Any]:
        """The dead letter as an entry of a list."""
        return {
            "letter": self.place,
            "time": f"{moment_text(self.record.timestamp, PER_SECOND['millis'])}Z",
            "origin": None if self.origin is None else "{}:{}:{}".format(*self.origin),
            "stage": self.told.get("stage"),
            "message": self.told.get("exception.message"),
            "replayed": self.replayed,
        }


def letters(job: Job) -> Iterator[Letter]:
    """Yield a job's dead letters, in order within each partition. Raises LetterError or ChangelogError."""
    topic = _topic(job)
    replayed = {
        place.decode()
        for records in committed(job.brokers, topic)
        for headers in records.headers or ()
        for name, place in headers
        if name == _REPLAYED and place is not None
    }
    for records in committed(job.brokers, topic):
        for record in records.each:
            told = {
                name.removeprefix(PREFIX): (value or b"").decode(errors="replace")
                for name, value in record.headers
                if name.startswith(PREFIX)
            }
            if told.get("connector.name") == job.name:
                original = tuple(each for each in record.headers if not each[0].startswith(PREFIX))
                letter = Letter(replace(record, headers=original), told)
                yield replace(letter, replayed=letter.place in replayed)


def tables_of_letters(job: Job) -> Iterator[pa.Table]:
    """Yield a job's dead letters as Arrow tables, at least one. Raises LetterError or ChangelogError.

    `_partition` and `_offset` are the position in the dead letter topic, `_timestamp` is the time of the record there.
    """
    found = letters(job)
    while True:
        columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS.names}
        for each in islice(found, _AT_ONCE):
            for name, value in zip(_COLUMNS.names, _row_of(each), strict=True):
                columns[name].append(value)
        yield pa.table(columns, schema=_COLUMNS)
        if len(columns["letter"]) < _AT_ONCE:
            return


_COLUMNS = pa.schema(
    {
        "letter": pa.string(),
        "origin_topic": pa.string(),
        "origin_partition": pa.int32(),
        "origin_offset": pa.int64(),
        "query": pa.string(),
        "stage": pa.string(),
        "error": pa.string(),
        "message": pa.string(),
        "replayed": pa.bool_(),
        "key": pa.binary(),
        "value": pa.binary(),
        "_partition": pa.int32(),
        "_offset": pa.int64(),
        "_timestamp": pa.timestamp("ms", "UTC"),
    }
)


def _row_of(letter: Letter) -> tuple[Any, ...]:
    told, record = letter.told, letter.record
    return (
        letter.place,
        *(letter.origin or (None, None, None)),
        told.get("task.id"),
        told.get("stage"),
        told.get("exception.class.name"),
        told.get("exception.message"),
        letter.replayed,
        record.key,
        record.value,
        record.partition,
        record.offset,
        record.timestamp if record.timestamp >= 0 else None,
    )


def letter(job: Job, place: str) -> Letter:
    """Return the dead letter at a position, `partition:offset`. Raises LetterError or ChangelogError."""
    (found,) = _chosen(job, letters(job), [place])
    return found


def replay(job: Job, places: Collection[str]) -> list[Letter]:
    """Send the original records of the given dead letters back to their topics, unless this has been done before.

    Return the dead letters that were sent. If `places` is empty, all records that no query could decode are sent. If
    several queries have a dead letter for the same record, the record is sent once. Raises LetterError or
    ChangelogError.
    """
    topic = _topic(job)
    producer: Any = Producer(transactional_settings(job.brokers, f"{job.name}-replay", _TRANSACTION_MS))
    sent: list[Letter] = []
    try:
        # This fences any other process that replays, and makes the records that it sent visible.
        producer.init_transactions(2 * ANSWER_SECONDS)
        # All originals are looked up before anything is sent.
        due = [(each, _original(job.brokers, each)) for each in _due(job, places)]
        for first in range(0, len(due), _AT_ONCE):
            producer.begin_transaction()
            for each, original in due[first : first + _AT_ONCE]:
                if not sent or each.origin != sent[-1].origin:
                    _send(producer, each, original)
                    sent.append(each)
                push(producer, topic, None, None, each.record.partition, headers=[(_REPLAYED, each.place.encode())])
            producer.commit_transaction(_TRANSACTION_MS / 1000)
    except KafkaException as error:
        raise translate(error, servers(job.brokers), "sending dead letters back") from None
    return sent


def _due(job: Job, places: Collection[str]) -> list[Letter]:
    """Return the dead letters to send back, with dead letters for the same record next to each other."""
    there = list(letters(job))
    if places:
        origins = {each.origin for each in _chosen(job, there, places) if not each.replayed}
    else:
        origins = {each.origin for each in there if each.told.get("stage") in READING and not each.replayed}
    origins -= {each.origin for each in there if each.replayed}
    return sorted((each for each in there if each.origin in origins), key=lambda each: each.origin or ())


def _chosen(job: Job, there: Iterable[Letter], places: Collection[str]) -> list[Letter]:
    found = {each.place: each for each in there if each.place in places}
    for place in places:
        if place not in found:
            raise LetterError(
                f"there is no dead letter {place} of job {job.name} in topic {_topic(job)}: "
                f"`rowkind dead-letters list` lists them"
            )
    return [found[place] for place in places]


def _original(kafka: KafkaSettings, letter: Letter) -> OneRecord:
    if letter.origin is None:
        raise LetterError(
            f"dead letter {letter.place} cannot be replayed: operator {letter.told.get('stage')} received this row "
            f"from another operator, so no single source record corresponds to it"
        )
    if letter.told.get("exception.class.name") != "UnmatchedRetraction":
        return replace(letter.record, timestamp=int(letter.told.get("timestamp", -1)))
    topic, partition, offset = letter.origin
    original = record_at(kafka, topic, partition, offset)
    if original is None:
        raise LetterError(
            f"dead letter {letter.place} cannot be replayed: its record (topic {topic}, partition {partition}, offset "
            f"{offset}) no longer exists"
        )
    return original


def _send(producer: Producer, letter: Letter, original: OneRecord) -> None:
    assert letter.origin is not None, "the letter has an original record"
    topic, partition, _ = letter.origin
    time = max(0, original.timestamp)
    push(producer, topic, original.value, original.key, partition, timestamp=time, headers=list(original.headers))


def _topic(job: Job) -> str:
    if job.dead_letters.topic is None:
        raise LetterError("the job has no dead letter topic: set `dead_letters: {topic: …}`")
    return job.dead_letters.topic


def readable(data: bytes | None, schema: bytes | None, registry: Registry) -> Any:
    """Return a key or value in readable form: a row if a schema is found, otherwise JSON, text or hexadecimal.

    `schema`: the value of the header with the schema id, None if the record has no such header.
    """
    if data is None:
        return None
    framed = split(pa.array([data], pa.binary()), pa.array([schema], pa.binary()))
    if not framed.bad[0] and framed.schemas[0] is not None:
        with suppress(AvroError):
            record = registry.schema_by_id(framed.schemas[0])
            if not codec.read(record, framed.payload).bad[0]:
                return decode(record, framed.payload)[0]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    try:
        return json.loads(text)
    except ValueError:
        return text if text.isprintable() else f"0x{data.hex()}"
