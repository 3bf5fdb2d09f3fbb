"""Rows with Kafka Connect's schema, read and written by Connect's own JsonConverter."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from rowkind.avro.connect_json import rows_with_schema
from rowkind.avro.json_rows import check_row, encode
from rowkind.avro.schema import Record
from rowkind.service.dev.jars import KAFKA
from rowkind.service.machine.jars import fetched, java, spark_jars

pytestmark = pytest.mark.kafka

CONNECT = "org.apache.kafka.connect.data."
COLUMNS = {
    "id": "INT NOT NULL",
    "big": "BIGINT",
    "good": "BOOLEAN",
    "ratio": "DOUBLE",
    "small": "FLOAT",
    "name": "STRING",
    "bytes": "BINARY",
    "amount": "DECIMAL(12,2)",
    "huge": "DECIMAL(38,10) NOT NULL",
    "day": "DATE",
    "at_time": "TIME(6)",
    "at_ms": "TIMESTAMP(3)",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "fine": "TIMESTAMP(9)",
    "number": "UUID",
    "tags": "ARRAY<STRING>",
    "sums": "MAP<STRING, DECIMAL(6,2)>",
    "inner": "STRUCT<a: INT, b: ARRAY<DATE NOT NULL>, c: STRUCT<d: TIMESTAMP>>",
}
FULL: dict[str, Any] = {
    "id": -7,
    "big": 2**63 - 1,
    "good": True,
    "ratio": 0.1,
    "small": 0.5,
    "name": 'ä "quoted" 🦆\n',
    "bytes": base64.b64encode(b"\x00\xff").decode(),
    "amount": "-1.28",
    "huge": "-1234567890123456789012345678.0123456789",
    "day": "2026-02-02",
    "at_time": "12:34:56.789123",
    "at_ms": "2026-01-05T12:00:00.001Z",
    "at": "1969-12-31T23:59:59.999999Z",
    "local": "2026-01-05T12:00:00.123456",
    "fine": "2026-01-05T12:00:00.123456789Z",
    "number": "00000000-0000-0000-0000-00000000002a",
    "tags": ["a", None, ""],
    "sums": {"x": "0.00", "y": None},
    "inner": {"a": 1, "b": ["1969-12-31"], "c": {"d": "2026-01-05T12:00:00Z"}},
}
EMPTY: dict[str, Any] = {"id": 0, "huge": "0.0000000000"}
FAR = EMPTY | {"day": "+20000-01-01", "at": "-0044-03-15T00:00:00Z", "amount": "9999999999.99", "huge": "1.28"}


@pytest.fixture(scope="module")
def connect() -> Iterator[Any]:
    """A JVM with Connect's JSON converter."""
    jars = fetched(f"Kafka Connect JSON {KAFKA}", [("org.apache.kafka", "connect-json", KAFKA)])
    own = [str(path) for path in spark_jars("py4j-*.jar")]
    path = os.pathsep.join([*own, f"{jars}/*"])
    port = launch_gateway(classpath=path, jarpath=own[0], java_path=java(), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield gateway.jvm
    gateway.shutdown()


def converter(connect: Any, *, key: bool = False) -> Any:
    """Return the converter with a sink connector's default settings."""
    found = connect.org.apache.kafka.connect.json.JsonConverter()
    found.configure({"schemas.enable": "true"}, key)
    return found


def written(record: Record, *rows: dict[str, Any]) -> list[bytes]:
    """Return the records that a sink with `connect_schema` writes."""
    return rows_with_schema(record, encode(record, [check_row(record, row) for row in rows]))


def test_connect_reads_what_is_written(connect: Any) -> None:
    """Schema and values of every type are the same as those that the converter itself writes."""
    record, own = Record.of(COLUMNS), converter(connect)
    for text in written(record, FULL, EMPTY, FAR):
        found = own.toConnectData("t", bytearray(text))
        again = bytes(own.fromConnectData("t", found.schema(), found.value()))
        assert json.loads(again) == json.loads(text)


def test_connect_reads_the_values_that_the_row_has(connect: Any) -> None:
    """Decimals are numbers, and times are milliseconds, truncated and not rounded."""
    (text,) = written(Record.of(COLUMNS), FULL)
    found = converter(connect).toConnectData("t", bytearray(text))
    schema, row = found.schema(), found.value()
    fields = {each.name(): each.schema() for each in schema.fields()}
    assert list(fields) == list(COLUMNS)
    names = {name: (str(each.type()), each.name(), each.isOptional()) for name, each in fields.items()}
    assert names["id"] == ("INT32", None, False)
    assert names["huge"] == ("BYTES", f"{CONNECT}Decimal", False)
    assert names["day"] == ("INT32", f"{CONNECT}Date", True)
    assert names["at_time"] == ("INT32", f"{CONNECT}Time", True)
    assert {names[name] for name in ("at_ms", "at", "local", "fine")} == {("INT64", f"{CONNECT}Timestamp", True)}
    assert (str(row.get("amount")), str(row.get("huge"))) == (FULL["amount"], FULL["huge"])
    milliseconds = {name: row.get(name).getTime() for name in ("day", "at_time", "at_ms", "at", "local", "fine")}
    assert milliseconds == {
        "day": 1_769_990_400_000,
        "at_time": 45_296_789,
        "at_ms": 1_767_614_400_001,
        "at": -1,
        "local": 1_767_614_400_123,
        "fine": 1_767_614_400_123,
    }


def test_a_key_is_as_connectors_expect_it(connect: Any) -> None:
    """A key is a struct of its columns."""
    record = Record.of({"customer_id": "INT NOT NULL"})
    (text,) = written(record, {"customer_id": 7})
    assert json.loads(text) == {
        "schema": {
            "type": "struct",
            "optional": False,
            "fields": [{"field": "customer_id", "type": "int32", "optional": False}],
        },
        "payload": {"customer_id": 7},
    }
    found = converter(connect, key=True).toConnectData("t", bytearray(text))
    assert found.value().getInt32("customer_id") == 7


def test_connect_refuses_what_it_has_no_form_for(connect: Any) -> None:
    """NaN must not become 0: the converter fails on it, as on any text that is not JSON."""
    (text,) = written(Record.of({"x": "DOUBLE"}), {"x": "NaN"})
    with pytest.raises(Exception, match="NaN"):
        converter(connect).toConnectData("t", bytearray(text))
