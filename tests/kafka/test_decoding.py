"""Decoding of records to rows: every row kind header, every policy, every kind of invalid record."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rowkind.avro.confluent_registry import ConfluentRegistry
from rowkind.avro.errors import RegistryUnreachableError
from rowkind.avro.framing import VALUE_HEADER
from rowkind.avro.registry import identify
from rowkind.avro.schema import Record
from rowkind.service.execute.metrics import sample
from rowkind.service.execute.promises import BrokenPromiseError
from rowkind.service.kafka.errors import UndecodableRowError
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader
from tests.kafka.tables import ORDER_KEY, ORDERS, Result, Topic, order, pass_on, read_all, scan

pytestmark = pytest.mark.kafka

SPELLED = {
    "rowkind": (b"+I", b"-U", b"+U", b"-D"),
    "words": (b"insert", b"update_before", b"update_after", b"delete"),
    "ordinal": (b"0", b"1", b"2", b"3"),
}


@pytest.mark.parametrize("preset", SPELLED)
def test_presets_that_know_all_four_kinds_read_them(orders: Topic, preset: str) -> None:
    """Each spelling of a preset gives its row kind."""
    result = _read_kinds(orders, preset, SPELLED[preset])
    assert [kind for kind, _ in result.rows()] == ["+I", "-U", "+U", "-D"]


@pytest.mark.parametrize(
    ("preset", "words", "kinds"),
    [
        ("ordinal", (b"\x00", b"\x01", b"\x02", b"\x03"), ["+I", "-U", "+U", "-D"]),
        ("words", (b"UPDATE", b"INSERT"), ["+U", "+I"]),
        ("debezium", (b"c", b"r", b"u", b"d"), ["+I", "+I", "+U", "-D"]),
        ("diff", (b"1", b"+1", b"-1"), ["+I", "+I", "-D"]),
    ],
)
def test_other_spellings_of_a_preset_are_read_too(
    orders: Topic, preset: str, words: tuple[bytes, ...], kinds: list[str]
) -> None:
    """Ordinals as bytes, words in capitals, Debezium's letters and signed differences are accepted."""
    assert [kind for kind, _ in _read_kinds(orders, preset, words).rows()] == kinds


def test_of_several_headers_with_the_name_the_last_wins(orders: Topic) -> None:
    """Other headers before, between and after it do not matter."""
    value = orders.value(order(1))
    orders.send(([("op", b"+I"), ("trace", b"x"), ("op", b"-D"), ("trace", None)], value, None))
    assert read_all(orders.spec()).rows() == [("-D", order(1))]


@pytest.mark.parametrize("policy", ["insert", "dead_letter", "fail"])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, "the record has no header 'op'"),
        ([("other", b"+I")], "the record has no header 'op'"),
        ([("op", b"truncate")], "unknown row kind b'truncate'"),
        ([("op", None)], "unknown row kind None"),
    ],
)
def test_a_missing_or_unknown_row_kind_follows_the_policy(
    orders: Topic, policy: Any, headers: Any, reason: str
) -> None:
    """The record becomes an insert or a dead letter, or ends the query with the record's origin."""
    orders.send((b"+I", order(1)), (headers, orders.value(order(2)), b"k"))
    spec = orders.spec(scan(orders.name, row_kind=RowKindHeader(missing=policy, unknown=policy)))
    if policy == "fail":
        with pytest.raises(UndecodableRowError, match=rf"{orders.name}, partition 0, offset 1: .*{reason}"):
            read_all(spec)
        return
    result = read_all(spec)
    if policy == "insert":
        assert result.rows() == [("+I", order(1)), ("+I", order(2))]
        return
    assert result.rows() == [("+I", order(1))]
    (letter,) = result.letters
    assert (letter.topic, letter.partition, letter.offset, letter.stage) == (orders.name, 0, 1, "row kind")
    assert reason in letter.message
    assert (letter.key, letter.value, letter.headers) == (b"k", orders.value(order(2)), tuple(headers or ()))


BAD_VALUES = {
    "not framed": (b"plain text", "framing", "begins with byte 0x70"),
    "json": (b'{"id": 1}', "framing", "looks like JSON"),
    "empty": (b"", "framing", "too short"),
    "too short for an id": (b"\x00\x00\x01", "framing", "too short"),
    "null": (None, "framing", "no value"),
    "unknown schema id": (b"\x00\x00\x00\x00\x07\x02", "schema", "id 7"),
    "cut off": ("cut", "value", "field"),
    "trailing bytes": ("trailing", "value", ""),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_a_bad_value_is_a_dead_letter_with_its_origin(orders: Topic, case: str) -> None:
    """Its neighbours are read, and the letter has the origin, the timestamp, the raw record and the reason."""
    raw, stage, reason = BAD_VALUES[case]
    good = orders.value(order(1, "name"))
    raw = {"cut": good[:-3], "trailing": good + b"!"}.get(raw, raw) if isinstance(raw, str) else raw
    orders.send((b"+I", order(1)), ([("op", b"+U")], raw, b"key"), (b"-D", order(3)))
    result = read_all(orders.spec())
    assert result.rows() == [("+I", order(1)), ("-D", order(3))]
    (letter,) = result.letters
    assert (letter.table, letter.topic, letter.partition, letter.offset) == ("orders", orders.name, 0, 1)
    assert (letter.key, letter.value, letter.headers) == (b"key", raw, (("op", b"+U"),))
    assert (letter.stage, letter.error) == (stage, "UndecodableRowError")
    assert reason in letter.message
    assert letter.timestamp is not None
    assert result.counters[f'rowkind_dead_letters_total{{table="orders",reason="{stage}"}}'] == 1
    with pytest.raises(UndecodableRowError, match=f"{orders.name}, partition 0, offset 1"):
        read_all(orders.spec(tolerate=False))


def test_a_schema_without_a_column_of_the_table_makes_dead_letters(orders: Topic) -> None:
    """The message names the missing NOT NULL column, and rows with a suitable schema are read."""
    other = Topic(orders.name, orders.broker, orders.registry, Record.of({"number": "BIGINT NOT NULL"}, name="Other"))
    orders.send((b"+I", order(1)))
    orders.send(([("op", b"+I")], other.value({"number": 5}), None))
    result = read_all(orders.spec())
    assert result.ids() == [1]
    assert [(letter.stage, letter.offset) for letter in result.letters] == [("schema", 1)]
    assert "id" in result.letters[0].message


def test_a_null_where_none_may_be_is_a_dead_letter_and_a_broken_promise(orders: Topic) -> None:
    """This includes columns that the writer has in another type; with `promises: fail`, such a null ends the read."""
    as_text = Record.of({"id": "BIGINT", "name": "STRING"}, name="Order")
    widened = Record.of({"id": "INT", "name": "STRING"}, name="Order")
    for record in (as_text, widened):
        writer = Topic(orders.name, orders.broker, orders.registry, record)
        for number in (1, None):
            orders.send(([("op", b"+I")], writer.value({"id": number, "name": "a"}), None))
    result = read_all(orders.spec())
    assert result.ids() == [1, 1]
    assert [(letter.stage, letter.offset) for letter in result.letters] == [("value", 1), ("value", 3)]
    assert all("NOT NULL" in letter.message for letter in result.letters)
    broken = {"table": "orders", "promise": "not_null"}
    assert result.counters[sample("rowkind_broken_promises_total", **broken)] == 2
    assert result.counters[sample("rowkind_broken_promise_offset", **broken, partition=0)] in {1, 3}
    with pytest.raises(BrokenPromiseError, match="offset 1 of partition 0"):
        read_all(orders.spec(promises="fail"))


def test_rows_of_several_schemas_are_read_as_the_table_has_them(orders: Topic) -> None:
    """Each value is read with its writer's schema: extra columns go, missing nullable ones are NULL, ints widen."""
    wider = Record.of({"extra": "STRING", "id": "BIGINT NOT NULL", "name": "STRING"}, name="Order")
    narrow = Record.of({"name": "STRING", "id": "INT NOT NULL"}, name="Order")
    more = [Topic(orders.name, orders.broker, orders.registry, record) for record in (wider, narrow)]
    orders.send((b"+I", order(1, "a", "1.00")))
    more[0].send((b"+I", {"extra": "x", "id": 2, "name": "b"}))
    more[1].send((b"+I", {"id": 3, "name": "c"}))
    orders.send((b"+I", order(4, "d", "4.00")))
    assert [row for _, row in read_all(orders.spec()).rows()] == [
        order(1, "a", "1.00"),
        order(2, "b"),
        order(3, "c"),
        order(4, "d", "4.00"),
    ]


def test_the_schema_may_be_named_by_guid_or_in_a_header(orders: Topic) -> None:
    """Both newer wire formats are read besides the old one."""
    number, guid = identify(ORDERS)
    plain = [orders.value(order(i))[5:] for i in range(4)]
    header = (VALUE_HEADER, b"\x00" + number.to_bytes(4, "big"))
    orders.send(
        ([("op", b"+I")], orders.value(order(0)), None),
        ([("op", b"+I")], b"\x01" + guid.bytes + plain[1], None),
        ([("op", b"+I"), header], plain[2], None),
        ([(VALUE_HEADER, b"\x01" + guid.bytes), ("op", b"+I")], plain[3], None),
        ([("op", b"+I")], b"\x01" + uuid.UUID(int=5).bytes + plain[1], None),
    )
    result = read_all(orders.spec())
    assert result.ids() == [0, 1, 2, 3]
    assert [(letter.stage, letter.offset) for letter in result.letters] == [("schema", 4)]


def test_an_unreachable_registry_fails_the_read_and_blames_no_record(orders: Topic) -> None:
    """The error names the registry's address, and no record becomes a dead letter."""
    orders.send((b"+I", order(1)))
    registry = ConfluentRegistry({"url": "http://127.0.0.1:1", "max.retries": 0})
    with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1:1"):
        read_all(orders.spec(registry=registry))


def test_an_append_table_takes_insertions_only(orders: Topic) -> None:
    """Any other row kind is a dead letter that says so."""
    orders.send((b"+I", order(1)), (b"+U", order(2)), (b"-D", order(3)))
    result = read_all(orders.spec(scan(orders.name, mode="append")))
    assert result.rows() == [("+I", order(1))]
    assert [(letter.stage, letter.offset) for letter in result.letters] == [("changelog", 1), ("changelog", 2)]
    assert "which has mode append" in result.letters[0].message


def test_an_upsert_table_takes_values_as_updates_and_nulls_as_deletes(orders: Topic) -> None:
    """A tombstone becomes a -D row with the key's columns and NULL elsewhere, whatever the headers are."""
    orders.send(
        (None, orders.value(order(1, "a", "1.00")), orders.key(1)),
        ([("op", b"+I")], orders.value(order(2, "b")), orders.key(2)),
        (None, None, orders.key(1)),
        ([("op", b"+I")], None, orders.key(3)),
        ([("op", b"-D")], orders.value(order(2, "b")), orders.key(2)),
        ([("op", b"nonsense")], orders.value(order(4, "d")), orders.key(4)),
    )
    result = read_all(orders.spec(scan(orders.name, mode="upsert")))
    assert result.letters == []
    assert result.rows() == [
        ("+U", order(1, "a", "1.00")),
        ("+U", order(2, "b")),
        ("-D", order(1, None)),
        ("-D", order(3, None)),
        ("-D", order(2, "b")),
        ("+U", order(4, "d")),
    ]


def test_a_tombstone_deletes_where_other_columns_are_not_null(orders: Topic) -> None:
    """The NOT NULL columns get placeholders, because a delete needs only the key."""
    strict = Record.of(
        {
            "id": "BIGINT NOT NULL",
            "name": "STRING NOT NULL",
            "amount": "DECIMAL(10,2) NOT NULL",
            "tags": "ARRAY<STRING> NOT NULL",
            "at": "TIMESTAMP NOT NULL",
            "flag": "BOOLEAN NOT NULL",
            "score": "DOUBLE NOT NULL",
            "raw": "BINARY NOT NULL",
        },
        name="Strict",
    )
    orders.send((None, None, orders.key(7)))
    result = read_all(orders.spec(scan(orders.name, mode="upsert", record=strict)))
    ((kind, row),) = result.rows(strict)
    assert (kind, row["id"], row["name"], row["tags"]) == ("-D", 7, "", [])


@pytest.mark.parametrize(
    ("key", "stage"), [(None, "framing"), (b"raw", "framing"), ("cut", "key"), ("unknown", "schema")]
)
def test_a_tombstone_whose_key_cannot_be_read_is_a_dead_letter(orders: Topic, key: Any, stage: str) -> None:
    """A null value without a readable key does not identify a row."""
    key = (
        {"cut": orders.key(1)[:5], "unknown": b"\x00\x00\x00\x00\x01\x02"}.get(key, key)
        if isinstance(key, str)
        else key
    )
    orders.send((None, orders.value(order(1)), orders.key(1)), (None, None, key))
    result = read_all(orders.spec(scan(orders.name, mode="upsert")))
    assert result.ids() == [1]
    assert [(letter.stage, letter.key, letter.value) for letter in result.letters] == [(stage, key, None)]


def test_a_key_that_is_a_bare_value_names_the_column_by_its_place(orders: Topic) -> None:
    """Keys are often a plain long and not a record."""
    bare = Record.parse('"long"')
    number = orders.registry.register(f"{orders.name}-bare-key", bare)
    orders.send((None, None, b"\x00" + number.to_bytes(4, "big") + b"\x0a"))
    result = read_all(orders.spec(scan(orders.name, mode="upsert")))
    assert result.rows() == [("-D", order(5, None))]


def test_only_the_columns_that_somebody_reads_are_kept(orders: Topic) -> None:
    """The calc's input may be a part of the table's columns."""
    part = ORDERS.select(["id", "name"])
    orders.send((b"+I", order(1, "a", "1.00")))
    result = read_all(orders.spec(scan(orders.name, declared=ORDERS, calc=pass_on(part))))
    assert result.rows(part) == [("+I", {"id": 1, "name": "a"})]
    assert ORDER_KEY.names == ("id",)


def test_counters_tell_rows_by_kind_and_bytes(orders: Topic) -> None:
    """The counters of rows by kind and of bytes are sent along with the first block."""
    orders.send((b"+I", order(1)), (b"+I", order(2)), (b"-D", order(1)))
    result = read_all(orders.spec())
    size = sum(len(orders.value(order(i))) for i in (1, 2, 1))
    wanted = {'rows_in_total{table="orders",kind="+I"}': 2, 'rows_in_total{table="orders",kind="-D"}': 1}
    wanted['bytes_in_total{table="orders"}'] = size
    counted = {name.removeprefix("rowkind_"): value for name, value in result.counters.items()}
    assert {name: counted[name] for name in wanted} == wanted


def _read_kinds(orders: Topic, preset: str, words: tuple[bytes, ...]) -> Result:
    orders.send(*((word, order(1)) for word in words))
    return read_all(orders.spec(scan(orders.name, row_kind=RowKindHeader(values=PRESETS[preset]))))
