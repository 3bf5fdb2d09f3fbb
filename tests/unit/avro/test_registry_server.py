"""The registry of `rowkind dev`, queried with Confluent's own client and over plain HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from rowkind.avro.confluent_registry import ConfluentRegistry
from rowkind.avro.errors import UnknownSchemaError, UnknownSubjectError
from rowkind.avro.framing import VALUE_HEADER, split
from rowkind.avro.registry import FolderRegistry, identify
from rowkind.avro.schema import Record
from rowkind.service.dev.registry_server import RegistryServer

ROW = Record.of({"id": "BIGINT NOT NULL", "name": "STRING"})
WIDER = Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "more": "INT"})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    """An empty registry."""
    with RegistryServer(FolderRegistry(tmp_path), 0) as serving:
        yield serving


def ask(server: RegistryServer, path: str, told: Any = None) -> tuple[int, Any]:
    """Send a GET, or a POST if a body is given; return the status and the parsed answer."""
    body = told if told is None or isinstance(told, bytes) else json.dumps(told).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, body)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_confluents_client_registers_and_finds_schemas(server: RegistryServer) -> None:
    """Confluent's client finds a schema by ID, subject, version and content."""
    client = SchemaRegistryClient({"url": server.url})
    schema = Schema(ROW.to_json(), "AVRO")
    number = client.register_schema("orders-value", schema)
    assert number == identify(ROW)[0]
    assert client.register_schema("orders-value", schema) == number
    client.register_schema("orders-value", Schema(WIDER.to_json(), "AVRO"))
    assert client.get_subjects() == ["orders-value"]
    assert client.get_versions("orders-value") == [1, 2]
    assert client.get_latest_version("orders-value").schema_id == identify(WIDER)[0]
    assert client.get_version("orders-value", 1).schema_id == number
    assert client.lookup_schema("orders-value", schema).version == 1
    assert json.loads(client.get_schema(number).schema_str) == ROW.avro


@pytest.mark.parametrize("registers", [True, False], ids=["registers", "looks up"])
def test_confluents_serializer_puts_the_guid_into_a_header(server: RegistryServer, registers: bool) -> None:
    """A record with the schema's GUID in a header is written, whether its schema is new to the registry or not."""
    client = SchemaRegistryClient({"url": server.url})
    if not registers:
        client.register_schema("orders-value", Schema(ROW.to_json(), "AVRO"))
    configured = {"schema.id.serializer": header_schema_id_serializer, "auto.register.schemas": registers}
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    value = AvroSerializer(client, ROW.to_json(), conf=configured)({"id": 1, "name": "a"}, context)
    framed = split(pa.array([value], pa.binary()), pa.array([dict(headers)[VALUE_HEADER]], pa.binary()))
    assert framed.schemas == (identify(ROW)[1],)
    assert client.get_schema_by_guid(str(identify(ROW)[1])) is not None


def test_jobs_read_and_write_through_it(server: RegistryServer, tmp_path: Path) -> None:
    """A job's registry client works with this server, and registered schemas are stored in the folder."""
    registry = ConfluentRegistry({"url": server.url})
    number = registry.register("orders-value", ROW)
    assert registry.latest("orders-value") == ROW
    assert registry.schema_by_id(number) == registry.schema_by_id(identify(ROW)[1]) == ROW
    assert FolderRegistry(tmp_path).latest("orders-value") == ROW
    with pytest.raises(UnknownSubjectError):
        registry.latest("payments-value")
    for unknown in (5, uuid.UUID(int=5)):
        with pytest.raises(UnknownSchemaError):
            registry.schema_by_id(unknown)


@pytest.mark.parametrize(
    ("path", "told", "status", "code"),
    [
        ("/subjects/orders/versions", None, 404, 40401),
        ("/subjects/orders/versions/latest", None, 404, 40401),
        ("/subjects/there/versions/7", None, 404, 40402),
        ("/subjects/there", {"schema": '"string"'}, 404, 40403),
        ("/schemas/ids/7", None, 404, 40403),
        ("/subjects/there/versions", {"schema": "{"}, 422, 42201),
        ("/subjects/there/versions", {"schema": '"string"', "schemaType": "JSON"}, 422, 42201),
        ("/subjects/there/versions", b"[]", 422, 42201),
        ("/subjects/there/versions", b"\xff", 422, 42201),
        ("/elsewhere", None, 404, 404),
    ],
)
def test_what_is_not_there_or_no_schema_is_told(
    server: RegistryServer, path: str, told: Any, status: int, code: int
) -> None:
    """Missing schemas and invalid ones are answered with the status and error code that clients know."""
    ask(server, "/subjects/there/versions", {"schema": ROW.to_json()})
    found, answer = ask(server, path, told)
    assert (found, answer["error_code"]) == (status, code)


def test_what_clients_ask_before_they_begin_is_answered(server: RegistryServer) -> None:
    """The server answers with the schema types, the mode, and the compatibility level NONE."""
    assert ask(server, "/schemas/types") == (200, ["AVRO"])
    assert ask(server, "/config/orders-value") == (200, {"compatibilityLevel": "NONE"})
    assert ask(server, "/mode") == (200, {"mode": "READWRITE"})
