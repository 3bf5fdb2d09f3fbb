"""A job's dead letters on a broker: listing them, showing them, and replaying each original once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rowkind.service.dev.broker import Broker
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.query.errors import LetterError
from rowkind.service.run.dead_letters import letter, letters, readable, replay
from tests.kafka.sinks import committed
from tests.kafka.tables import Topic, order, settings

pytestmark = pytest.mark.kafka

ROW_KIND = ("op", b"+I")
TIME = int(time.time() * 1000) - 3_600_000
"""The time at which the originals were sent, in ms; recent enough that retention keeps them."""


@dataclass
class Letters:
    """A job with a table and a dead letter topic."""

    job: Job
    orders: Topic
    topic: str

    def original(self, partition: int = 0) -> tuple[int, bytes]:
        """Send a record to the table's topic; return its offset and value."""
        there = self.sent(partition)
        value = self.orders.value(order(len(there)))
        self.orders.send(([ROW_KIND, ("trace", None)], value, b"key"), partition=partition)
        return len(there), value

    def write(self, *found: DeadLetter, job: str = "", query: str = "main") -> None:
        """Write dead letters as the job's writer does."""
        producer = Producer(settings(self.orders.broker))
        for each in found:
            headers: Any = each.written_headers(job or self.job.name, query)
            producer.produce(self.topic, each.value, each.key, headers=headers)
        producer.flush()

    def bad(self, offset: int, value: bytes, **changed: Any) -> DeadLetter:
        """Return the dead letter for a record of the table."""
        told = {"stage": "value", "error": "UndecodableRowError", "message": "it is bad"}
        place = {"topic": self.orders.name, "partition": 0, "offset": offset, "timestamp": TIME}
        return DeadLetter(
            "orders", **(told | place | changed), key=b"key", value=value, headers=(ROW_KIND, ("trace", None))
        )

    def sent(self, partition: int = 0) -> list[Any]:
        """Return the records in a partition of the table's topic."""
        found = committed(settings(self.orders.broker), self.orders.name)
        return [each for each in found if each.partition() == partition]


@pytest.fixture
def at(broker: Broker, orders: Topic, new_topic: Callable[..., str], tmp_path: Path) -> Letters:
    """A job with an empty dead letter topic."""
    topic = new_topic()
    job = {
        "job": f"letters-{topic}",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "registry": {"folder": "schemas"},
        "dead_letters": {"topic": topic},
        "tables": {"orders": {"topic": orders.name, "mode": "append", "columns": {"id": "BIGINT"}}},
        "sinks": {"all": {"topic": new_topic(), "mode": "append", "sql": "SELECT id FROM orders"}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    return Letters(load(tmp_path / "job.yaml"), orders, topic)


def test_letters_say_where_they_came_from_and_why(at: Letters) -> None:
    """Only this job's letters are listed, even if the topic is shared; each is named by partition and offset."""
    offset, value = at.original()
    at.write(at.bad(offset, value), job="another")
    at.write(at.bad(offset, value), DeadLetter("orders", "join_1", "ExpressionError", "1 / 0", value=b'{"id": 1}'))
    first, second = letters(at.job)
    assert first.summary == {
        "letter": "0:1",
        "time": first.summary["time"],
        "origin": f"{at.orders.name}:0:{offset}",
        "stage": "value",
        "message": "it is bad",
        "replayed": False,
    }
    assert (second.place, second.origin, second.told["stage"]) == ("0:2", None, "join_1")
    found = letter(at.job, "0:1")
    assert (found.record.key, found.record.value, found.record.headers) == (b"key", value, (ROW_KIND, ("trace", None)))
    with pytest.raises(LetterError, match=r"no dead letter 0:0 of job letters-.* `rowkind dead-letters list`"):
        letter(at.job, "0:0")


def test_an_original_is_sent_back_once(at: Letters) -> None:
    """The original is sent to its partition unchanged, and letters of several queries for one record count as one."""
    bad = [at.bad(*at.original()) for _ in range(3)]
    at.write(*bad, query="one")
    at.write(*bad, query="two")
    assert [each.place for each in replay(at.job, ["0:1"])] == ["0:1"]
    assert not replay(at.job, ["0:1", "0:4"])
    assert [each.origin and each.origin[2] for each in replay(at.job, [])] == [0, 2]
    assert not replay(at.job, [])
    originals, again = at.sent()[:3], at.sent()[3:]
    assert [(each.key(), each.value(), each.headers()) for each in again] == [
        (each.key(), each.value(), each.headers()) for each in (originals[1], originals[0], originals[2])
    ]
    assert {each.timestamp()[1] for each in again} == {TIME}
    assert all(each.replayed for each in letters(at.job))
    # The new record may fail again, and has a separate dead letter.
    at.write(at.bad(3, again[0].value()))
    assert [each.origin and each.origin[2] for each in replay(at.job, [])] == [3]


def test_all_are_those_that_no_query_took(at: Letters) -> None:
    """Without a name, expression failures are left out, because another query may have used the row."""
    offset, value = at.original()
    at.write(at.bad(offset, value, stage="expression"))
    assert not replay(at.job, [])
    assert [each.place for each in replay(at.job, ["0:0"])] == ["0:0"]


def test_of_an_unmatched_retraction_the_record_itself_is_sent_back(at: Letters) -> None:
    """The letter has the row as JSON, so the original record is sent; without one source record, replay is refused."""
    offset, value = at.original()
    lost = {"stage": "join_1", "error": "UnmatchedRetraction"}
    at.write(at.bad(offset, b'{"id": 0}', **lost), at.bad(offset + 5, b'{"id": 0}', **lost))
    at.write(DeadLetter("orders", "join_1", "ExpressionError", "1 / 0", value=b'{"id": 1}'))
    assert [each.place for each in replay(at.job, ["0:0"])] == ["0:0"]
    assert [(each.value(), each.headers()) for each in at.sent()] == 2 * [(value, [ROW_KIND, ("trace", None)])]
    with pytest.raises(LetterError, match="operator join_1 received this row from another operator"):
        replay(at.job, ["0:2"])
    assert len(at.sent()) == 2


def test_keys_and_values_are_shown_as_people_read_them(at: Letters) -> None:
    """A key or value is shown as a row if its schema is known, otherwise as JSON, as text or in hex."""
    registry = at.orders.registry
    value = at.orders.value(order(7, "x"))
    assert readable(value, None, registry)["id"] == 7
    assert readable(value[5:], value[:5], registry)["name"] == "x"
    assert readable(value[:-1], None, registry) == f"0x{value[:-1].hex()}"
    assert readable(b"\0\0\0\x30\x39" + value[5:], None, registry).startswith("0x0000003039")
    assert readable(b'{"a": 1}', None, registry) == {"a": 1}
    assert readable(b"plain", None, registry) == "plain"
    assert readable(None, None, registry) is None
