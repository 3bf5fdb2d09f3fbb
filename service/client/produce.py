"""Write rows to the topic of a table, in the form that the job reads: row kind, key, schema."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from rowkind.avro.errors import UnknownSubjectError
from rowkind.avro.json_rows import check_row, encode
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record, Type
from rowkind.avro.text_values import ValueProblem
from rowkind.operators.changelog import SYMBOLS, RowKind
from rowkind.service.client.external_table import JobFile, OutsideError, opened, writable_topic
from rowkind.service.job.columns import as_written
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka.clients import producer_settings, servers
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.errors import translate
from rowkind.service.kafka.record_builder import push
from rowkind.service.kafka.sink_formats import AsAvro, AsJson, AsLong, AsPlainAvro, AsText, Forms, Written
from rowkind.service.kafka.topics import register_schema
from rowkind.service.physical.row_kind import spellings
from rowkind.service.physical.source_table import KeyFormatName, SourceTable, TopicFormat

_AT_ONCE = 1_000
_KINDS: Mapping[str, tuple[str, ...]] = {
    "append": ("+I",),
    "retract": ("+I", "-U", "+U", "-D"),
    "upsert": ("+I", "+U", "-D"),
}


class Producer:
    """A producer for the topic of a table. As a context manager, it flushes all rows at the end.

    The values of a row are Python values or their JSON forms; a missing column is NULL. If the table has a primary key,
    it becomes the record key, so that the changes of a row stay in order.

    Raises OutsideError for a change that the table cannot take. May also raise JobError, RegistryError or
    ChangelogError.
    """

    def __init__(self, job: JobFile, table: str) -> None:
        job = opened(job)
        self._of = writable_topic(job, table)
        self._record = as_written(job, table)
        Cluster(job.brokers).topics([self._of.topic])
        self._key = _key_record(job, self._of)
        self._forms = forms(job, self._of, self._record, self._key)
        self._headers = [[(self._of.row_kind.header, word)] for word in spellings(self._of.row_kind.values)]
        self._servers = servers(job.brokers)
        self._waiting: list[tuple[RowKind, dict[str, Any]]] = []
        self._failed: KafkaError | None = None
        settings: dict[str, Any] = {**producer_settings(job.brokers), "on_delivery": self._delivered}
        self._producer: Any = KafkaProducer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.flush()

    @property
    def table(self) -> SourceTable:
        """The table: its columns, key and mode."""
        return self._of

    def insert(self, row: Mapping[str, Any]) -> None:
        """Insert a row."""
        self.send("+I", row)

    def update(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Replace the row `before` with the row `after`."""
        if self._of.mode == "retract":
            self.send("-U", before)
        self.send("+U", after)

    def delete(self, row: Mapping[str, Any]) -> None:
        """Delete a row. For an upsert table, the key columns are enough."""
        self.send("-D", row)

    def send(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write a change of any kind: "+I", "-U", "+U" or "-D"."""
        of = self._of
        if kind not in _KINDS[of.mode]:
            expected = " or ".join(_KINDS[of.mode])
            raise OutsideError(f"{kind!r} cannot be written to table {of.table} of mode {of.mode}: use {expected}")
        # The declared columns apply: the primary key is required, even if it is optional in the topic's schema.
        record = of.declared
        if of.mode == "upsert" and kind == "-D":
            record, row = of.key, {name: value for name, value in row.items() if name in of.primary_key}
        try:
            self._waiting.append((RowKind(SYMBOLS.index(kind)), check_row(record, row)))
        except ValueProblem as problem:
            raise OutsideError(f"table {of.table}: {problem}") from None
        if len(self._waiting) >= _AT_ONCE:
            self._hand_over()

    def flush(self) -> None:
        """Wait until the brokers have acknowledged all rows. Raises ChangelogError."""
        self._hand_over()
        self._producer.flush()
        if self._failed is not None:
            raise self._problem(KafkaException(self._failed))

    def _hand_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        values = self._values(waiting)
        keys: list[bytes | None] = [None] * len(waiting)
        if self._forms.key is not None:
            packed = SameRows(self._key)(encode(self._key, [row for _, row in waiting]))
            keys = self._forms.key(packed).to_pylist()
        try:
            for (kind, _), key, value in zip(waiting, keys, values, strict=True):
                push(self._producer, self._of.topic, value, key, headers=self._headers[kind])
        except KafkaException as error:
            raise self._problem(error) from None

    def _values(self, waiting: list[tuple[RowKind, dict[str, Any]]]) -> list[bytes | None]:
        gone = [self._of.mode == "upsert" and kind == RowKind.DELETE for kind, _ in waiting]
        there = encode(self._record, [row for (_, row), none in zip(waiting, gone, strict=True) if not none])
        written = iter(self._forms.value(there).to_pylist())
        return [None if none else next(written) for none in gone]

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    def _problem(self, error: KafkaException) -> Exception:
        return translate(error, self._servers, f"writing to topic {self._of.topic}")


def _key_record(job: Job, of: SourceTable) -> Record:
    """Return the columns of the record keys.

    The bytes of a key have the id of its schema, and they choose the partition. If the registered schema differs only
    in its name or in NOT NULL, it is used, so that each writer of the topic sends a key to the same partition.
    """
    if not of.primary_key or (of.key_format or of.format) != "avro":
        return of.key
    try:
        registered = open_registry(job).latest(f"{of.topic}-key")
    except UnknownSubjectError:
        return of.key
    return registered if not registered.bare and _columns(registered) == _columns(of.key) else of.key


def _columns(record: Record) -> list[tuple[str, Type]]:
    return [(field.name, field.type.required) for field in record.fields]


def forms(job: Job, of: SourceTable, record: Record, key_record: Record) -> Forms:
    """Return the formats of values and keys that the job expects in the topic of the table."""
    key = key_record if of.primary_key else None
    value = _form(job, of.topic, record, of.format, "value")
    return Forms(value, None if key is None else _form(job, of.topic, key, of.key_format or of.format, "key"))


def _form(job: Job, topic: str, record: Record, format_: TopicFormat | KeyFormatName, what: str) -> Written:
    match format_:
        case "avro":
            return AsAvro(register_schema(open_registry(job), f"{topic}-{what}", record))
        case "plain_avro":
            return AsPlainAvro()
        case "json":
            return AsJson(record)
        case "string":
            return AsText(record)
        case "long":
            return AsLong(record)
