"""Registry outages: an answer that no registry gives is an outage, but an error from the registry itself is not."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import confluent_registry
from rowkind.avro.confluent_registry import ConfluentRegistry
from rowkind.avro.errors import RegistryError, RegistryUnreachableError, SchemaError, UnknownSchemaError
from rowkind.avro.framing import frame
from rowkind.avro.registry import identify
from rowkind.avro.schema import Record
from rowkind.service.kafka.decode import DecodedRecords, Decoder
from rowkind.service.kafka.headers import Headers
from rowkind.service.kafka.record import Records
from tests.kafka.tables import packed, scan
from tests.strange_registry import MISBEHAVIOURS, StrangeRegistry

ROW = Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DECIMAL(10,2)"}, name="Order")
WIDER = Record.of({"id": "BIGINT NOT NULL", "more": "STRING"}, name="Order")
SECONDS = 0.4

CALLS: dict[str, Callable[[ConfluentRegistry], object]] = {
    "by id": lambda registry: registry.schema_by_id(identify(ROW)[0]),
    "by GUID": lambda registry: registry.schema_by_id(identify(ROW)[1]),
    "latest": lambda registry: registry.latest("orders-value"),
    "register": lambda registry: registry.register("orders-value", WIDER),
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrangeRegistry]:
    """A registry with the schema of a row."""
    with StrangeRegistry(tmp_path_factory.mktemp("schemas")) as strange:
        strange.folder.register("orders-value", ROW)
        yield strange


@pytest.fixture
def server(serving: StrangeRegistry) -> Iterator[StrangeRegistry]:
    """The registry, which works before and after each test."""
    confluent_registry._session.cache_clear()
    yield serving
    serving.end()
    serving.schemas.clear()


def client(server: StrangeRegistry, **settings: object) -> ConfluentRegistry:
    """Return a client with an empty cache and a short timeout."""
    return ConfluentRegistry({"url": server.url, "timeout": SECONDS, "max.retries": 0, **settings})


def decoded(registry: ConfluentRegistry, *schemas: int) -> DecodedRecords:
    """Decode records, each with a schema of the given ID."""
    values = [
        frame(each, pa.array(packed(ROW, [{"id": 1, "name": "a", "amount": None}]), pa.binary())) for each in schemas
    ]
    count = len(schemas)
    records = Records(
        "orders",
        np.zeros(count, np.int64),
        np.arange(count),
        pa.concat_arrays(values),
        pa.nulls(count, pa.binary()),
        Headers.of([[("op", b"+I")]] * count),
        np.zeros(count, np.int64),
    )
    return Decoder(scan("orders", record=ROW), registry, tolerate=True).decode(records)


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS)
@pytest.mark.parametrize("call", CALLS)
def test_a_misbehaving_registry_is_an_outage_and_then_over(
    server: StrangeRegistry, misbehaviour: str, call: str
) -> None:
    """The error names the address and is raised within the timeout, and afterwards the same client works again."""
    registry = client(server)
    server.begin(misbehaviour)
    began = time.monotonic()
    with pytest.raises(RegistryUnreachableError, match=server.url) as caught:
        CALLS[call](registry)
    assert time.monotonic() - began < SECONDS + 1
    assert caught.value.listens
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    server.end()
    CALLS[call](registry)


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS)
def test_no_record_is_blamed_for_an_outage(server: StrangeRegistry, misbehaviour: str) -> None:
    """During an outage, decoding fails as a whole, and afterwards it gives every row."""
    registry = client(server)
    server.begin(misbehaviour)
    with pytest.raises(RegistryUnreachableError):
        decoded(registry, identify(ROW)[0])
    server.end()
    assert [len(decoded(registry, identify(ROW)[0]).rows), len(decoded(registry, identify(ROW)[0]).letters)] == [1, 0]


def test_only_the_registrys_own_word_makes_a_record_bad(server: StrangeRegistry) -> None:
    """An ID that the registry does not know makes a dead letter of stage `schema`, and the other records are rows."""
    found = decoded(client(server), identify(ROW)[0], 5, identify(ROW)[0])
    assert len(found.rows) == 2
    (letter,) = found.letters
    assert letter.stage == "schema"
    assert "no schema has the id 5" in letter.message


def test_a_registry_of_before_guids_knows_none(server: StrangeRegistry) -> None:
    """A foreign 404 for a GUID is an outage, and the registry's own 404 means that it does not know the GUID."""
    server.begin("no such path")
    with pytest.raises(RegistryUnreachableError):
        client(server).schema_by_id(uuid.UUID(int=5))
    server.end()
    with pytest.raises(UnknownSchemaError):
        client(server).schema_by_id(uuid.UUID(int=5))


def test_retries_count_towards_the_timeout(server: StrangeRegistry) -> None:
    """Retries end with the timeout, for any number of retries and any wait between them."""
    server.begin("store not ready")
    began = time.monotonic()
    with pytest.raises(RegistryUnreachableError, match=f"no answer within {SECONDS:g} s"):
        client(server, **{"max.retries": 50, "retries.wait.ms": 10_000}).latest("orders-value")
    assert time.monotonic() - began < SECONDS + 1


def test_the_timeout_is_ten_seconds_by_default(server: StrangeRegistry) -> None:
    """Without a setting, the timeout is 10 s."""
    assert ConfluentRegistry({"url": server.url})._session.seconds == 10.0


@pytest.mark.parametrize("number", ["5", 5, "0.5", "5e0"])
def test_a_timeout_is_a_number_however_it_is_written(server: StrangeRegistry, number: object) -> None:
    """Numbers may be written as text, as settings of a job file are."""
    registry = ConfluentRegistry({"url": server.url, "timeout": number, "max.retries": "1", "retries.wait.ms": "10"})
    assert registry.schema_by_id(identify(ROW)[0]) == ROW
    assert registry._session.seconds == float(str(number))


@pytest.mark.parametrize("number", ["5s", "", "nan", "inf", "-1", "0", None, "1_0,"])
def test_a_timeout_that_is_none_is_refused(server: StrangeRegistry, number: object) -> None:
    """An invalid timeout is refused with the name of the setting and the valid values."""
    with pytest.raises(RegistryError, match="`timeout` must be a number of seconds above 0"):
        ConfluentRegistry({"url": server.url, "timeout": number})


def test_messages_have_no_login(server: StrangeRegistry) -> None:
    """An error does not repeat a login in the registry's address."""
    server.begin("internal error")
    with pytest.raises(RegistryUnreachableError) as caught:
        client(server, url=server.url.replace("//", "//job:planted@")).latest("orders-value")
    assert "planted" not in str(caught.value)
    assert server.url in str(caught.value)


def _nested(depth: int, kind: str) -> str:
    """Return a record with one field of records, arrays, maps or unions, nested to this depth."""
    schema: object = "long"
    for level in range(depth):
        match kind:
            case "records":
                schema = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": schema}]}
            case "arrays":
                schema = {"type": "array", "items": schema}
            case "maps":
                schema = {"type": "map", "values": schema}
            case "nullable records":
                record = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": schema}]}
                schema = ["null", record]
            case "type of type":
                schema = {"type": schema}
    return _text({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, _Deep(schema)]})


class _Deep(dict[str, object]):
    """A field whose type may be nested more deeply than json.dumps supports."""

    def __init__(self, type_: object) -> None:
        super().__init__(name="deep", type=type_)


def _text(schema: object) -> str:
    """Return JSON of any depth."""
    parts: list[str] = []
    todo: list[object] = [schema]
    while todo:
        match each := todo.pop():
            case bytes():
                parts.append(each.decode())
            case dict():
                inner: list[object] = [b"{"]
                for place, (name, value) in enumerate(each.items()):
                    inner += [(", " * bool(place) + json.dumps(name) + ": ").encode(), value]
                todo += [b"}", *reversed(inner)]
            case list():
                inner = [b"["]
                for place, value in enumerate(each):
                    inner += [b", " if place else b"", value]
                todo += [b"]", *reversed(inner)]
            case _:
                parts.append(json.dumps(each))
    return "".join(parts)


def _chained(depth: int) -> str:
    """Return records that refer to the previous one by name: flat in JSON, but nested when resolved."""
    fields: list[object] = [{"name": "id", "type": "long"}]
    for level in range(depth):
        inner = "long" if not level else f"R{level - 1}"
        record = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": inner}]}
        fields.append({"name": f"f{level}", "type": record})
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def _default(depth: int) -> str:
    return _text(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "long"}, {"name": "deep", "type": "long", "default": _lists(depth)}],
        }
    )


def _lists(depth: int) -> object:
    found: object = 0
    for _ in range(depth):
        found = [found]
    return found


def _large(characters: int) -> str:
    return json.dumps({"type": "record", "name": "Order", "doc": "x" * characters, "fields": []})


STRANGE = {
    **{
        f"{kind}, {depth} deep": _nested(depth, kind)
        for kind in ("records", "arrays", "maps", "nullable records", "type of type")
        for depth in (150, 300, 3_000)
    },
    "names, 300 deep": _chained(300),
    "names, 3,000 deep": _chained(3_000),
    "a default, 3,000 deep": _default(3_000),
    "a default, 500 deep": _default(500),
    "10 MB": _large(10_000_000),
    "no JSON": "{",
    "two values": '"long" "long"',
    "no type": "{}",
    "no schema at all": "",
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_schema_that_cannot_be_read_is_a_dead_letter(server: StrangeRegistry, name: str) -> None:
    """The dead letter has a short reason, the schema is requested once, and the records around it are rows."""
    registry = client(server, timeout=10)
    number = 77
    server.schemas[number] = STRANGE[name]
    registry.schema_by_id(identify(ROW)[0])
    asked = server.asked
    for _ in range(2):
        found = decoded(registry, identify(ROW)[0], number)
        assert len(found.rows) == 1
        (letter,) = found.letters
        assert letter.stage == "schema"
        assert 0 < len(letter.message) < 500
    assert server.asked == asked + 1
    with pytest.raises(SchemaError):
        registry.schema_by_id(number)


@pytest.mark.parametrize("kind", ["records", "arrays", "maps", "nullable records"])
def test_a_schema_as_deep_as_may_be_is_read(kind: str) -> None:
    """A schema of the greatest allowed depth can be parsed, compared, hashed and written again."""
    depth = 45 if kind == "nullable records" else 95
    record = Record.parse(_nested(depth, kind))
    assert Record.parse(record.to_json()) == record
    assert record.same_rows(record)
    assert hash(record) == hash(Record.parse(record.to_json()))
    assert record.type("deep").sql
