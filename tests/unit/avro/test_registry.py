"""Both kinds of registry against the same tests, and the errors of each kind."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from rowkind.avro.confluent_registry import ConfluentRegistry
from rowkind.avro.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnreachableError,
    SchemaError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from rowkind.avro.registry import FolderRegistry, Registry, identify
from rowkind.avro.schema import Field, Record, Type

ORDERS = Record.of({"order_id": "BIGINT NOT NULL", "amount": "DECIMAL(10,2)"}, name="Order")
WIDER = Record.of({"order_id": "BIGINT NOT NULL", "amount": "DECIMAL(10,2)", "note": "STRING"}, name="Order")


@pytest.fixture(params=["folder", "confluent"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    """An empty registry of each kind."""
    return FolderRegistry(tmp_path / "schemas") if request.param == "folder" else mock()


def mock() -> ConfluentRegistry:
    """Return a Confluent registry on the client's own mock, not shared with other tests."""
    return ConfluentRegistry({"url": f"mock://{uuid.uuid4()}"})


def test_what_is_registered_is_found_by_id_and_as_the_latest(registry: Registry) -> None:
    """Registering a schema twice gives one ID; a second version becomes the latest, and the first stays readable."""
    first = registry.register("orders-value", ORDERS)
    assert registry.register("orders-value", ORDERS) == first
    assert registry.latest("orders-value") == ORDERS
    second = registry.register("orders-value", WIDER)
    assert second != first
    assert registry.latest("orders-value") == WIDER
    assert registry.schema_by_id(first) == ORDERS
    assert registry.schema_by_id(second) == WIDER


def test_keys_that_are_no_records_are_registered_as_they_are(registry: Registry) -> None:
    """A key that is a plain long keeps its schema."""
    key = Record.parse('"long"')
    assert registry.schema_by_id(registry.register("orders-key", key)).to_json() == '"long"'


def test_unknown_ids_and_subjects_have_errors_of_their_own(registry: Registry) -> None:
    """The error names the unknown ID or subject."""
    with pytest.raises(UnknownSchemaError, match="no schema has the id 123456"):
        registry.schema_by_id(123456)
    with pytest.raises(UnknownSchemaError, match="89791762"):
        registry.schema_by_id(uuid.UUID("89791762-2336-4186-9674-299b90a802e2"))
    with pytest.raises(UnknownSubjectError, match="subject 'nobody-value'"):
        registry.latest("nobody-value")


def test_names_that_no_other_reader_accepts_are_not_registered(registry: Registry) -> None:
    """A column whose name is not a valid Avro name is refused before the schema is stored."""
    with pytest.raises(SchemaError, match=r"the name 'o\.id', which Avro does not allow"):
        registry.register("odd", Record("Odd", (Field("o.id", Type.of("INT")),)))


def test_registries_pickle_as_their_settings(registry: Registry) -> None:
    """A registry that is pickled and loaded again finds the same schemas."""
    number = registry.register("orders-value", ORDERS)
    assert pickle.loads(pickle.dumps(registry)).schema_by_id(number) == ORDERS


def test_a_folder_is_read_and_written_by_its_file_names(tmp_path: Path) -> None:
    """Each version is one file; other files and subjects with similar names are ignored, and no other file remains."""
    registry = FolderRegistry(tmp_path)
    registry.register("orders", ORDERS)
    registry.register("orders", WIDER)
    registry.register("orders.v2x", ORDERS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.avsc", "orders.v2.avsc", "orders.v2x.avsc"]
    (tmp_path / "orders.v10.avsc").write_text(ORDERS.to_json())
    assert registry.latest("orders") == ORDERS
    (tmp_path / "broken.avsc").write_text("{")
    with pytest.raises(SchemaError, match=r"broken\.avsc: the schema is not JSON"):
        registry.latest("broken")


def test_ids_of_a_folder_depend_on_the_schema_alone(tmp_path: Path) -> None:
    """The ID ignores documentation, spelling and folder, but not a logical type; this number must never change."""
    text = '{"type": "record", "name": "T", "doc": "…", "fields": [{"name": "a", "doc": "…", "type": {"type": "int"}}]}'
    record = Record.parse(text)
    assert identify(record)[0] == identify(Record.parse(record.to_json()))[0] == 1498937231
    assert identify(record) != identify(Record.of({"a": "DATE NOT NULL"}, name="T"))
    number, guid = identify(record)
    (tmp_path / "t.avsc").write_text(text)
    assert FolderRegistry(tmp_path).schema_by_id(number) == FolderRegistry(tmp_path).schema_by_id(guid) == record


def test_processes_that_register_at_once_lose_nothing(tmp_path: Path) -> None:
    """Concurrent writers of many versions leave exactly one file for each schema."""
    records = [Record.of({f"c{i}": "INT"}, name="T") for i in range(6)]
    threads = [
        threading.Thread(target=lambda: [FolderRegistry(tmp_path).register("t", record) for record in records])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = [Record.parse(path.read_text()) for path in tmp_path.iterdir()]
    assert sorted(record.names for record in stored) == sorted(record.names for record in records)


def test_schemas_that_refer_to_others_are_read() -> None:
    """A schema registered with references is resolved to one complete schema."""
    registry = mock()
    client = registry._session.client
    inner = '{"type": "record", "name": "x.Money", "fields": [{"name": "amount", "type": "long"}]}'
    outer = '{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "x.Money"}]}'
    client.register_schema("money", Schema(inner, "AVRO"))
    number = client.register_schema("order", Schema(outer, "AVRO", [SchemaReference("x.Money", "money", 1)]))
    assert registry.schema_by_id(number).type("price").sql == "STRUCT<amount: BIGINT>"


def test_schemas_of_another_kind_are_refused() -> None:
    """A JSON schema is refused with its type."""
    registry = mock()
    number = registry._session.client.register_schema("j", Schema("{}", "JSON"))
    with pytest.raises(RegistryError, match="has type JSON; only Avro is supported"):
        registry.schema_by_id(number)


def test_an_unreachable_registry_says_so() -> None:
    """If the registry does not answer, the error has its address and what to check."""
    registry = ConfluentRegistry({"url": "http://127.0.0.1:9", "max.retries": 0, "timeout": 5})
    with pytest.raises(RegistryUnreachableError, match=r"http://127\.0\.0\.1:9 cannot be reached.*Check registry\.url"):
        registry.latest("orders")


def test_wrong_settings_are_an_error_of_the_registry() -> None:
    """The error names a setting that the client does not know."""
    with pytest.raises(RegistryError, match=r"basic\.auth\.usr"):
        ConfluentRegistry({"url": "http://localhost:1", "basic.auth.usr": "x"})


@pytest.fixture
def answering() -> Iterator[Callable[[int, int, str], str]]:
    """Start registries that answer every request with one error; return their addresses."""
    servers: list[HTTPServer] = []

    def start(status: int, code: int, message: str) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f'{{"error_code": {code}, "message": "{message}"}}'.encode()
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 the base class's name

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (409, 409, IncompatibleSchemaError),
        (401, 40101, RegistryUnreachableError),
        (403, 40301, RegistryUnreachableError),
        (500, 50001, RegistryUnreachableError),
        (422, 42201, RegistryError),
    ],
)
def test_answers_of_the_registry_become_errors_of_ours(
    answering: Callable[[int, int, str], str], status: int, code: int, error: type[RegistryError]
) -> None:
    """Each error status of a registry becomes its own exception, with the registry's message or a hint on logins."""
    url = answering(status, code, "because")
    with pytest.raises(error) as caught:
        ConfluentRegistry({"url": url, "max.retries": 0}).register("orders-value", ORDERS)
    assert type(caught.value) is error
    assert "because" in str(caught.value) or "login" in str(caught.value)
