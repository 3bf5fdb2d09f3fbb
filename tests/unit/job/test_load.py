"""The meaning of a job file: references to the environment, secrets, short forms and defaults."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rowkind.avro.schema import Type
from rowkind.service.job.columns import declared
from rowkind.service.job.duration import parse, show
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.source_table import Start

HEAD = "job: shop\n"
TAIL = """
tables:
  orders: {mode: retract, columns: {order_id: BIGINT NOT NULL}, primary_key: order_id}
sinks:
  result: {mode: retract, sql: SELECT order_id FROM orders}
"""


def job(folder: Path, middle: str, tail: str = TAIL, **environment: str) -> Job:
    """Load the job with some lines between its name and its tables."""
    file = folder / "job.yaml"
    file.write_text(HEAD + middle + tail)
    return load(file, environment)


def test_references_are_replaced_from_the_environment(tmp_path: Path) -> None:
    """`${NAME}` and `${NAME:-default}` are replaced anywhere in a value; `$${` is a literal `${`."""
    found = job(
        tmp_path,
        "checkpoint: ${BASE}/${NAME:-shop}-$${x}\nparallelism: ${N:-3}\nttl: ${EMPTY:-2h}\n",
        BASE="/data",
        EMPTY="",
    )

    assert found.checkpoint == "/data/shop-${x}"
    assert found.parallelism == 3
    assert found.ttl == 7_200_000


def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """An unset variable, a missing secret file and an invalid reference are each reported with their line."""
    with pytest.raises(JobError) as caught:
        job(tmp_path, "checkpoint: ${NOPE}\nkafka: {bootstrap.servers: a, sasl.password: {file: nope}, x: '${a b}'}\n")

    lines = [line.removeprefix(f"{tmp_path / 'job.yaml'}:") for line in str(caught.value).splitlines()]
    assert lines == [
        "2: checkpoint: the environment variable NOPE is not set: set it, or give a default as ${NOPE:-…}",
        "3: kafka.sasl.password: the secret file nope cannot be read: No such file or directory",
        "3: kafka.x: '${a b}' is not valid: expected ${NAME}, ${NAME:-default} or ${file:/path}",
    ]


def test_secrets_come_from_files_and_are_never_printed(tmp_path: Path) -> None:
    """A secret is read from its file without the last line end, and is shown as *** wherever a job is printed."""
    (tmp_path / "password").write_text("hush-1\n")
    found = job(
        tmp_path,
        "kafka: {bootstrap.servers: '${SERVERS}', sasl.password: {file: password}, sasl.username: '${USER_NAME}', "
        "ssl.key.password: hush-3}\n"
        "registry: {url: 'http://localhost', basic.auth.user.info: 'me:${file:password}'}\n",
        SERVERS="kafka:9092",
        USER_NAME="hush-2",
    )

    assert found.kafka is not None
    assert found.registry is not None
    assert found.kafka["sasl.password"] == "hush-1"
    assert found.kafka["sasl.username"] == "hush-2"
    assert found.registry["basic.auth.user.info"] == "me:hush-1"
    for shown in (str(found), repr(found), str(found.kafka), f"{found.registry}"):
        assert "hush" not in shown
    assert "kafka:9092" in str(found)


def test_a_wrong_secret_is_not_printed_in_the_error_either(tmp_path: Path) -> None:
    """Errors under `kafka` and `registry` never quote the value."""
    with pytest.raises(JobError) as caught:
        job(tmp_path, "kafka: {bootstrap.servers: a, sasl.password: [hush-1]}\n")

    assert str(caught.value).endswith(":2: kafka.sasl.password: expected text")


def test_numbers_and_booleans_in_settings_become_text(tmp_path: Path) -> None:
    """Client settings are text, even if YAML reads them as numbers or booleans."""
    found = job(tmp_path, "kafka: {bootstrap.servers: a, linger.ms: 5, enable.ssl.certificate.verification: false}\n")

    assert found.kafka == {
        "bootstrap.servers": "a",
        "linger.ms": "5",
        "enable.ssl.certificate.verification": "false",
    }


def test_how_long_an_outage_may_take_is_no_setting_of_the_client(tmp_path: Path) -> None:
    """`kafka.outage` is read in ms and is not passed to the Kafka client."""
    found = job(tmp_path, "kafka: {bootstrap.servers: a, outage: 10m}\n")

    assert found.outage == 600_000
    assert found.brokers == {"bootstrap.servers": "a"}


def test_defaults(tmp_path: Path) -> None:
    """A short job has the documented defaults."""
    found = job(tmp_path, "")

    assert (found.parallelism, found.unmatched, found.batch.max_rows, found.ttl) == (2, "ignore", 500_000, None)
    assert found.batch.min_interval is None
    assert (found.dead_letters.topic, found.dead_letters.tolerance) == (None, "none")
    assert found.tables["orders"].topic == "orders"
    assert found.tables["orders"].primary_key == ("order_id",)
    assert found.sinks["result"].create
    assert found.tables["orders"].row_kind.physical("retract").values == {b"+I": 0, b"-U": 1, b"+U": 2, b"-D": 3}


def test_a_record_of_a_table_that_only_inserts_needs_no_row_kind(tmp_path: Path) -> None:
    """A record without a row kind is an insertion in an append table and a dead letter elsewhere, unless configured."""
    tail = """
tables:
  a: {mode: append, columns: {x: INT}}
  b: {mode: retract, columns: {x: INT}}
  c: {mode: append, columns: {x: INT}, row_kind: {missing: dead_letter}}
sinks:
  result: {mode: retract, sql: SELECT x FROM a}
"""
    tables = job(tmp_path, "", tail).tables
    missing = [each.row_kind.physical(each.mode).missing for each in tables.values()]
    assert missing == ["insert", "dead_letter", "dead_letter"]


def test_a_row_kind_may_be_a_preset_by_its_name_or_a_map(tmp_path: Path) -> None:
    """`row_kind` accepts the name of a preset, or a header with a map from words to kinds."""
    tail = """
tables:
  a: {mode: retract, columns: {x: INT}, row_kind: ordinal}
  b: {mode: retract, columns: {x: INT}, row_kind: {header: kind, values: {new: +I, gone: -D}, missing: insert}}
sinks:
  result: {mode: retract, sql: SELECT x FROM a}
"""
    tables = job(tmp_path, "", tail).tables

    assert tables["a"].row_kind.physical("retract").values[b"3"] == 3
    header = tables["b"].row_kind.physical("retract")
    assert (header.header, header.values, header.missing) == ("kind", {b"new": 0, b"gone": 3}, "insert")


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("latest", Start("latest")),
        ("{offsets: {0: 5, 1: 7}}", Start("offsets", offsets={0: 5, 1: 7})),
        (
            "{timestamp: 2026-01-31T12:00:00Z, on_lost: earliest, on_recreated: restart}",
            Start(
                "timestamp", round(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000), {}, "earliest", "restart"
            ),
        ),
        (
            "{timestamp: 2026-01-31 12:00:00}",
            Start("timestamp", round(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)),
        ),
    ],
)
def test_a_start_may_be_a_word_offsets_or_a_time(tmp_path: Path, written: str, start: Start) -> None:
    """`start` has short forms; a time without a zone is UTC."""
    tail = TAIL.replace("primary_key: order_id", f"start: {written}")

    assert job(tmp_path, "", tail).tables["orders"].start.physical() == start


def test_lines_are_known_for_fields_and_what_is_inside_of_them(tmp_path: Path) -> None:
    """A field that is not in the file has the line of its nearest enclosing field."""
    found = job(tmp_path, "ttl: 1d\n")

    assert found.line("ttl") == 2
    assert found.line("sinks", "result", "sql") == 7
    assert found.line("sinks", "result", "key") == 7
    assert found.line("nothing") == 1


def test_the_primary_key_is_never_null_and_the_rest_of_an_upsert_table_may_be(tmp_path: Path) -> None:
    """Primary keys and other columns keep their declared NOT NULL, also in an upsert table."""
    tail = """
tables:
  a: {mode: retract, columns: {x: INT, y: INT NOT NULL}, primary_key: x}
  b: {mode: upsert, columns: {x: INT, y: INT NOT NULL}, primary_key: x}
sinks:
  result: {mode: retract, sql: SELECT x FROM a}
"""
    found = job(tmp_path, "", tail)

    assert [str(field.type) for field in declared(found, "a").fields] == ["INT NOT NULL", "INT NOT NULL"]
    assert [str(field.type) for field in declared(found, "b").fields] == ["INT NOT NULL", "INT NOT NULL"]


def test_columns_come_from_a_schema_file_or_the_registry(tmp_path: Path) -> None:
    """Columns come from a schema file next to the job, or from the registry folder by the topic's subject."""
    schema = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "long"]}]}'
    (tmp_path / "a.avsc").write_text(schema)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "topic-b-value.avsc").write_text(schema)
    tail = """
tables:
  a: {mode: append, schema: a.avsc}
  b: {mode: append, topic: topic-b}
  c: {mode: append, schema: c.avsc}
sinks:
  result: {mode: append, sql: SELECT x FROM a}
"""
    found = job(tmp_path, "registry: {folder: schemas}\n", tail)

    assert declared(found, "a").type("x") == declared(found, "b").type("x") == Type.of("BIGINT")
    with pytest.raises(JobError, match=r":7: tables\.c\.schema: the schema file c\.avsc cannot be read: No such file"):
        declared(found, "c")


def test_a_table_of_which_nothing_says_the_columns_is_refused(tmp_path: Path) -> None:
    """A table without `columns`, `schema` and registry is refused."""
    found = job(tmp_path, "", TAIL.replace("columns: {order_id: BIGINT NOT NULL}, ", ""))

    with pytest.raises(JobError, match="set `columns` or `schema` in the table, or `registry` in the job"):
        declared(found, "orders")


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1500ms", 1500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("30d", 2_592_000_000),
        ("1d 12h", 129_600_000),
    ],
)
def test_lengths_of_time(text: str, length: int) -> None:
    """Lengths of time are parsed in each unit and as a sum of units."""
    assert parse(text) == length


@pytest.mark.parametrize(
    ("length", "text"), [(1500, "1500ms"), (90_000, "90s"), (43_200_000, "12h"), (2_592_000_000, "30d")]
)
def test_lengths_of_time_are_shown_in_the_largest_unit_that_fits(length: int, text: str) -> None:
    """A length of time is shown in the largest unit that divides it, and can be parsed again."""
    assert show(length) == text
    assert parse(text) == length
