"""`rowkind sql` folds the topics of every kind of source: Debezium, plain JSON, plain Avro, appended rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer as KafkaProducer

from rowkind.client import Producer
from rowkind.service.cli import main
from rowkind.service.dev.broker import Broker
from tests.envelopes import Row, envelope

pytestmark = pytest.mark.kafka

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING"}
SHOWN = "SELECT id, name, _offset FROM t ORDER BY id, _offset"


@dataclass(frozen=True)
class Source:
    """A job with the table `t`, whose topic has one partition."""

    job: Path
    topic: str
    producer: KafkaProducer

    def send(self, *records: tuple[Any, bytes | None]) -> None:
        """Write records with these keys and values."""
        for key, value in records:
            self.producer.produce(self.topic, value, None if key is None else json.dumps({"id": key}))
        self.producer.flush()

    def rows(self, query: str = SHOWN, *arguments: str) -> list[list[Any]]:
        """Return the rows of a query."""
        done = CliRunner().invoke(main, ["sql", str(self.job), query, "-o", "json", *arguments])
        assert done.exit_code == 0, done.output
        return [[*json.loads(line).values()] for line in done.stdout.splitlines()]


@pytest.fixture
def source(broker: Broker, new_topic: Callable[..., str], tmp_path: Path) -> Callable[..., Source]:
    """Return a function that makes a job with a table."""

    def made(**table: Any) -> Source:
        kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap_servers}
        topic = new_topic(1)
        job = {
            "job": "sources",
            "kafka": kafka,
            "registry": {"folder": "schemas"},
            "tables": {"t": {"topic": topic, "columns": COLUMNS, **table}},
            "sinks": {"o": {"topic": f"{topic}-out", "mode": "retract", "sql": "SELECT id, name FROM t"}},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        return Source(tmp_path / "job.yaml", topic, KafkaProducer(kafka))

    return made


def _debezium(*changes: tuple[str, int, str | None, str | None]) -> Sequence[tuple[int, bytes]]:
    """Return records: operation, id, and the name before and after, None if there is no row."""

    def row(id_: int, name: str | None) -> Row | None:
        return None if name is None else {"id": id_, "name": name}

    return [(id_, envelope(op, row(id_, before), row(id_, after))) for op, id_, before, after in changes]


@pytest.mark.parametrize("exact", [False, True])
def test_a_debezium_table_has_the_rows_of_the_database(source: Callable[..., Source], *, exact: bool) -> None:
    """Snapshot rows, inserts, updates and deletes with tombstones count; a later one is seen, and --at goes back."""
    # An update of a table that is not exact may lack the old row.
    table = source(mode="debezium", format="json", primary_key="id", exact=exact)
    before = "a" if exact else None
    table.send(*_debezium(("r", 1, None, "a"), ("c", 2, None, "b"), ("c", 3, None, "c")))
    table.send(*_debezium(("u", 1, before, "A"), ("d", 2, "b", None)), (2, None))
    assert table.rows() == [[1, "A", 3], [3, "c", 2]]
    assert table.rows(SHOWN, "--at", "t:0:2") == [[1, "a", 0], [2, "b", 1], [3, "c", 2]]
    table.send(*_debezium(("c", 2, None, "again")), (None, b"not an envelope"))
    assert table.rows("SELECT count(*), max(name) FROM t") == [[3, "c"]]


def test_a_truncation_empties_a_debezium_table(source: Callable[..., Source]) -> None:
    """Rows before the truncation are gone, rows after it are there."""
    table = source(mode="debezium", format="json", primary_key="id", on_truncate="empty")
    table.send(*_debezium(("c", 1, None, "a")), (None, envelope("t")), *_debezium(("c", 2, None, "b")))
    assert table.rows() == [[2, "b", 2]]


def test_rows_of_plain_json_are_appended(source: Callable[..., Source]) -> None:
    """Without row kinds, each record is a row, even if it equals another one."""
    table = source(mode="append", format="json")
    table.send(*[(None, b'{"id": 1, "name": "a", "more": 0}')] * 2, (None, b'{"id": 2}'), (None, b"{"))
    assert table.rows() == [[1, "a", 0], [1, "a", 1], [2, None, 2]]


@pytest.mark.parametrize("mode", ["append", "upsert", "retract"])
@pytest.mark.parametrize("form", ["avro", "plain_avro", "json"])
def test_every_mode_and_format_is_folded(mode: str, form: str, source: Callable[..., Source]) -> None:
    """An append table keeps both rows; in the others, an update replaces a row and a delete removes one."""
    table = source(mode=mode, format=form, **({} if mode == "append" else {"primary_key": "id"}))
    with Producer(table.job, "t") as rows:
        for number in (1, 2):
            rows.insert({"id": number, "name": "a"})
        if mode != "append":
            rows.update({"id": 1, "name": "a"}, {"id": 1, "name": "b"})
            rows.delete({"id": 2, "name": "a"})
    found = [row[:2] for row in table.rows()]
    assert found == ([[1, "a"], [2, "a"]] if mode == "append" else [[1, "b"]])
