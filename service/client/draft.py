"""Draft a job file from existing topics: names, formats, modes, columns, keys and watermarks of its tables.

A topic does not say what its records mean. The draft is a guess from its schemas, settings and first records. It gives
the reason for each mode, so that the user can check it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from rowkind.avro.errors import RegistryError, RegistryUnreachableError
from rowkind.avro.registry import Registry
from rowkind.avro.schema import Record
from rowkind.service.client.external_table import OutsideError
from rowkind.service.job.columns import row_of_envelope
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.committed_records import committed
from rowkind.service.kafka.record import OneRecord
from rowkind.service.kafka.topics import settings_of
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader

SAMPLE = 1_000
"""The number of records of a topic from which its mode is guessed."""

_HEADER = RowKindHeader().header
_ENVELOPE = {"before", "after", "op"}
_AVRO = b"\0"
"""The first byte of a value in Confluent's format."""

DraftMode = Literal["append", "upsert", "retract", "debezium"]


@dataclass(frozen=True)
class SampledTopic:
    """What is known about a topic: its first records, whether Kafka compacts it, and its registered schemas."""

    name: str
    records: Sequence[OneRecord]
    compacted: bool = False
    value: Record | None = None
    key: Record | None = None


@dataclass
class TableDraft:
    """The settings of a table, and the reason for its mode. `columns` are SQL types by name."""

    topic: str
    mode: DraftMode
    reason: str
    columns: Mapping[str, str]
    key: Sequence[str] = ()
    preset: str = "rowkind"
    format: Literal["avro", "json"] = "avro"
    watermark: str | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Derive a name that SQL accepts without quotes."""
        self.name = re.sub(r"\W+", "_", self.topic.rpartition(".")[2]).strip("_").lower() or "t"

    @property
    def needs_key(self) -> bool:
        """Whether the table needs a key that the topic does not tell."""
        return self.mode in ("upsert", "debezium") and not self.key

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table in a job file."""
        yield f"  {self.name}:"
        yield f"    topic: {self.topic}"
        if self.format != "avro":
            yield f"    format: {self.format}"
        yield f"    mode: {self.mode}    # {self.reason}"
        if self.preset != "rowkind":
            yield f"    row_kind: {self.preset}"
        if self.key:
            yield f"    primary_key: [{', '.join(self.key)}]"
        if self.watermark:
            yield f"    watermark: {{column: {self.watermark}, delay: 5s}}    # the only time of its rows"
        yield "    columns:"
        yield from (f"      {name}: {json.dumps(sql) if ',' in sql else sql}" for name, sql in self.columns.items())


def sampled(kafka: KafkaSettings, registry: Registry, topic: str) -> SampledTopic:
    """Return what a topic and the registry tell. Raises ChangelogError or RegistryUnreachableError."""
    records = itertools.chain.from_iterable(each.each for each in committed(kafka, topic))
    first = list(itertools.islice(records, SAMPLE))
    policy = settings_of(kafka, [topic]).get(topic, {}).get("cleanup.policy", "")
    schemas = [_latest(registry, f"{topic}-{part}") for part in ("value", "key")]
    return SampledTopic(topic, first, "compact" in policy, *schemas)


def draft(topic: SampledTopic, key: Sequence[str] = ()) -> TableDraft:
    """Return the draft of a table. A given `key` takes precedence over the topic's. Raises OutsideError."""
    in_avro = topic.value is not None and _in_avro(topic)
    value = topic.value if topic.value is not None and in_avro else _of_json(topic)
    mode, reason, preset = _mode(topic)
    if set(value.names) >= _ENVELOPE and (row := row_of_envelope(value)) is not None:
        value = row
        mode, reason, preset = "debezium", "its values are Debezium's envelopes", "rowkind"
    key = key or [name for name in (topic.key.names if topic.key is not None else ()) if name in value.names]
    if unknown := [name for name in key if name not in value.names]:
        raise OutsideError(f"topic {topic.name} has no column {unknown[0]!r}; its columns are {', '.join(value.names)}")
    columns = {
        each.name: each.type.sql if each.type.nullable and each.name not in key else f"{each.type.sql} NOT NULL"
        for each in value.fields
    }
    times = [name for name, sql in columns.items() if sql.startswith("TIMESTAMP")]
    watermark = times[0] if mode == "append" and len(times) == 1 else None
    known = key if mode != "append" else ()
    return TableDraft(topic.name, mode, reason, columns, known, preset, "avro" if in_avro else "json", watermark)


def _latest(registry: Registry, subject: str) -> Record | None:
    try:
        return registry.latest(subject)
    except RegistryUnreachableError:
        raise
    except RegistryError:
        return None


def _in_avro(topic: SampledTopic) -> bool:
    values = [each.value for each in topic.records if each.value is not None]
    return not values or any(value.startswith(_AVRO) for value in values)


def _mode(topic: SampledTopic) -> tuple[DraftMode, str, str]:
    """Return the mode, its reason, and the preset of the row kind."""
    # A table of mode upsert may have the header, too.
    if topic.compacted:
        return "upsert", "Kafka compacts the topic", "rowkind"
    if any(each.value is None for each in topic.records):
        return "upsert", "it has records without a value, which delete rows", "rowkind"
    headers = {each.header(_HEADER) for each in topic.records} - {None}
    for preset, values in PRESETS.items():
        if headers and headers <= values.keys():
            return "retract", f"its records have row kinds in the header {_HEADER}", preset
    return "append", "its records have no row kind, and Kafka does not compact the topic", "rowkind"


def _of_json(topic: SampledTopic) -> Record:
    """Return the columns of JSON objects, from their values. Raises OutsideError."""
    columns: dict[str, str] = {}
    for record in topic.records:
        if record.value is None:
            continue
        try:
            row = json.loads(record.value)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise OutsideError(
                f"topic {topic.name}: the value at offset {record.offset} of partition {record.partition} is neither "
                "JSON nor Avro with a registered schema: name the registry with --registry, or write the table by hand"
            )
        for name, value in row.items():
            columns[name] = _wider(columns.get(name), value)
    if not columns:
        raise OutsideError(
            f"topic {topic.name} has no records, and the registry has no schema {topic.name}-value: write the table "
            "by hand"
        )
    return Record.of({name: sql or "STRING" for name, sql in columns.items()})


def _wider(before: str | None, value: Any) -> str:
    """Return the SQL type that holds a value besides those before it; empty if all are null so far."""
    if value is None:
        return before or ""
    match value:
        case bool():
            found = "BOOLEAN"
        case int():
            found = "BIGINT"
        case float():
            found = "DOUBLE"
        case str():
            found = "TIMESTAMP" if _is_time(value) else "STRING"
        case _:
            raise OutsideError("JSON with nested values needs columns that you declare: write the table by hand")
    if not before or before == found:
        return found
    return "DOUBLE" if {before, found} == {"BIGINT", "DOUBLE"} else "STRING"


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text
