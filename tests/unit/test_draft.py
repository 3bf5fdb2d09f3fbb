"""Drafts of job files: what is guessed from a topic's schemas, settings and records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowkind.avro.schema import Record
from rowkind.service.client.draft import SampledTopic, draft
from rowkind.service.client.external_table import OutsideError
from rowkind.service.kafka.record import OneRecord

ORDERS = Record.of({"id": "BIGINT NOT NULL", "amount": "DECIMAL(10,2)", "at": "TIMESTAMP"})
KEY = Record.of({"id": "BIGINT NOT NULL"})
ENVELOPE = Record.of(
    {"before": "STRUCT<id: BIGINT, name: STRING>", "after": "STRUCT<id: BIGINT, name: STRING>", "op": "STRING"}
)


def record(value: bytes | None, **headers: bytes) -> OneRecord:
    """Return a record with this value and these headers."""
    return OneRecord(0, 0, 0, b"k", value, tuple(headers.items()))


def rows(*found: dict[str, Any]) -> list[OneRecord]:
    """Return records with these rows as JSON."""
    return [record(json.dumps(row).encode()) for row in found]


@pytest.mark.parametrize(
    ("topic", "mode", "reason"),
    [
        (SampledTopic("t", [record(b"\0", op=b"+U")], value=ORDERS, key=KEY), "retract", "header op"),
        (SampledTopic("t", [record(b"\0", op=b"2")], value=ORDERS, key=KEY), "retract", "header op"),
        (SampledTopic("t", [record(b"\0")], compacted=True, value=ORDERS, key=KEY), "upsert", "compacts"),
        (SampledTopic("t", [record(b"\0"), record(None)], value=ORDERS, key=KEY), "upsert", "without a value"),
        (SampledTopic("t", [record(b"\0")], value=ORDERS, key=KEY), "append", "does not compact"),
        (SampledTopic("t", [], value=ENVELOPE, key=KEY), "debezium", "envelopes"),
    ],
)
def test_the_mode_is_guessed_with_a_reason(topic: SampledTopic, mode: str, reason: str) -> None:
    """The guess follows the header of the row kind, compaction, deletes and Debezium's envelope."""
    found = draft(topic)
    assert found.mode == mode
    assert reason in found.reason


def test_columns_keys_and_the_watermark_come_from_the_schemas() -> None:
    """The key's columns are NOT NULL; only an append table with a single time has a watermark."""
    upsert = draft(SampledTopic("shop.public.orders", [], compacted=True, value=ORDERS, key=KEY))
    assert (upsert.name, upsert.key, upsert.watermark) == ("orders", ["id"], None)
    assert upsert.columns == {"id": "BIGINT NOT NULL", "amount": "DECIMAL(10,2)", "at": "TIMESTAMP"}
    append = draft(SampledTopic("clicks", [], value=ORDERS))
    assert (append.key, append.watermark) == ((), "at")


def test_a_key_that_the_topic_does_not_tell_is_needed() -> None:
    """A given key is used if it is a column."""
    topic = SampledTopic("t", [], compacted=True, value=ORDERS)
    assert draft(topic).needs_key
    assert not draft(topic, ["id"]).needs_key
    with pytest.raises(OutsideError, match="has no column 'nothing'; its columns are id, amount, at"):
        draft(topic, ["nothing"])


def test_columns_of_json_come_from_the_values() -> None:
    """Types are widened, NULL does not decide a type, and other values are refused."""
    first = {"id": 1, "price": 2, "name": None, "at": "2026-01-01T12:00:00Z", "ok": True}
    second = {"id": 2, "price": 2.5, "name": "a", "at": "2026-01-01T12:00:01Z", "ok": None, "late": None}
    found = draft(SampledTopic("t", rows(first, second)))
    types = ("BIGINT", "DOUBLE", "STRING", "TIMESTAMP", "BOOLEAN", "STRING")
    assert found.format == "json"
    assert found.columns == dict(zip(second, types, strict=True))
    for values, text in ((rows({"a": {"b": 1}}), "nested values"), ([record(b"\0\0")], "neither"), ([], "no records")):
        with pytest.raises(OutsideError, match=text):
            draft(SampledTopic("t", values))
