"""`rowkind verify` finds each of many faults that are planted in result topics written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Sender
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.client import Producer
from rowkind.errors import UNREACHABLE
from rowkind.service.cli.commands import main
from rowkind.service.client.folded_topics import FoldedTopics
from rowkind.service.dev.broker import Broker
from rowkind.service.execute.kernels import register
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from rowkind.service.verify.audit import QueryAudit
from rowkind.service.verify.compare import AuditedPart
from rowkind.service.verify.cut import BatchCut
from rowkind.service.verify.judgement import SinkAudit

pytestmark = pytest.mark.kafka

ITEMS = {
    "id": "BIGINT NOT NULL",
    "shop": "STRING",
    "qty": "INT",
    "price": "DECIMAL(10,2)",
    "weight": "DOUBLE",
    "day": "DATE",
    "at": "TIMESTAMP",
    "open": "BOOLEAN",
    "tags": "ARRAY<STRING>",
}
VALUED = {
    "id": "BIGINT NOT NULL",
    "shop": "STRING",
    "other": "STRING",
    "n": "INT",
    "total": "DECIMAL(21,2)",
    "heavy": "DOUBLE",
    "day": "DATE",
    "at": "TIMESTAMP",
    "open": "BOOLEAN",
    "tags": "ARRAY<STRING>",
}
SHOPS = {"shop": "STRING", "items": "BIGINT NOT NULL", "mean": "DECIMAL(14,6)"}
VALUED_SQL = (
    "SELECT id, shop, UPPER(shop) AS other, qty * 2 AS n, qty * price AS total, weight * 3 AS heavy, day, at, open, "
    "tags FROM items WHERE qty > 0"
)
SHOPS_SQL = "SELECT shop, COUNT(*) AS items, AVG(price) AS mean FROM items GROUP BY shop"


def item(number: int) -> dict[str, Any]:
    """Return a row of the source; every seventh has NULLs, and every tenth is not in the result `valued`."""
    blank = number % 7 == 0
    return {
        "id": number,
        "shop": None if blank else f"shop {number % 3}",
        "qty": 0 if number % 10 == 0 else number,
        "price": f"{number}.25",
        "weight": number / 3,
        "day": f"2026-01-{number % 28 + 1:02}",
        "at": f"2026-01-01T00:00:{number:02}.500Z",
        "open": None if blank else number % 2 == 0,
        "tags": ["a", "b"] if blank else [],
    }


def valued(number: int) -> dict[str, Any]:
    """Return the right row of the result `valued`."""
    of = item(number)
    total = number * (number * 100 + 25)
    return {
        **{name: of[name] for name in ("id", "shop", "day", "at", "open", "tags")},
        "other": None if of["shop"] is None else of["shop"].upper(),
        "n": number * 2,
        "total": f"{total // 100}.{total % 100:02}",
        "heavy": number / 3 * 3,
    }


@dataclass
class Audited:
    """A job whose result topics are written by hand."""

    broker: Broker
    folder: Path
    topics: FoldedTopics
    audit: QueryAudit
    valued: Producer
    shops: Producer

    def look(self, sink: str) -> SinkAudit:
        """Return the audit of a sink as its topic is now."""
        self.valued.flush()
        self.shops.flush()
        cluster = Cluster(self.topics.job.brokers)
        source = cluster.ends(cluster.topics([self.topics.job.tables["items"].topic]).partitions)
        results = cluster.ends(cluster.topics([self.topics.job.sinks[sink].topic]).partitions)
        begin = dict.fromkeys(source, 0)
        return self.audit.look(sink, BatchCut(source, results, (Offset(source, {}, begin, 0, 1),), proven=True))


@pytest.fixture(scope="module")
def audited(broker: Broker, admin: AdminClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    counts = {"av-items": 1, "av-valued": 2, "av-shops": 2, "audited.main.progress": 2}
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in counts.items()]).values():
        made.result()
    places = {"kafka": kafka, "registry": {"folder": "schemas"}}
    job = {
        "job": "audited",
        **places,
        "tables": {"items": {"topic": "av-items", "mode": "upsert", "columns": ITEMS, "primary_key": "id"}},
        "sinks": {
            "valued": {"topic": "av-valued", "mode": "upsert", "key": "id", "sql": VALUED_SQL},
            "shops": {"topic": "av-shops", "mode": "retract", "sql": SHOPS_SQL},
        },
    }
    written = {
        "valued": {"topic": "av-valued", "mode": "upsert", "columns": VALUED, "primary_key": "id"},
        "shops": {"topic": "av-shops", "mode": "retract", "columns": SHOPS},
    }
    writer = {
        "job": "writer",
        **places,
        "tables": written,
        "sinks": {"x": {"mode": "append", "sql": "SELECT 1 AS a FROM shops"}},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    (folder / "writer.yaml").write_text(json.dumps(writer))
    with (
        Producer(folder / "job.yaml", "items") as items,
        Producer(folder / "writer.yaml", "valued") as of_items,
        Producer(folder / "writer.yaml", "shops") as of_shops,
        FoldedTopics(folder / "job.yaml") as topics,
    ):
        for number in range(1, 41):
            items.insert(item(number))
            if number % 10:
                of_items.insert(valued(number))
        items.flush()
        register(topics.connection)
        for shop, count, mean in topics.connection.execute(_SHOPS).fetchall():
            of_shops.insert({"shop": shop, "items": count, "mean": str(mean)})
        yield Audited(broker, folder, topics, QueryAudit(topics.job, topics, "", AuditedPart()), of_items, of_shops)


_SHOPS = """
    SELECT shop, count(*), CAST(round(sum(price) / count(*), 6) AS DECIMAL(14,6)) FROM (
        SELECT CASE WHEN n % 7 > 0 THEN 'shop ' || n % 3 END AS shop, CAST(n AS DECIMAL(10,2)) + 0.25 AS price
        FROM range(1, 41) AS numbers(n)) GROUP BY shop
"""

WRONG: Mapping[str, Mapping[str, Any]] = {
    "a wrong integer": {"n": 7},
    "a wrong decimal": {"total": "3.00"},
    "a truncated decimal": {"total": "49.20"},
    "a wrong double": {"heavy": 5.0001},
    "a wrong text": {"shop": "shop 9"},
    "a text with a blank": {"shop": "shop 2 "},
    "a wrong date": {"day": "2026-01-07"},
    "a time in another time zone": {"at": "2026-01-01T01:00:05.500Z"},
    "a time without its fraction": {"at": "2026-01-01T00:00:05Z"},
    "a wrong boolean": {"open": True},
    "a wrong array": {"tags": ["a"]},
    "NULL for a value": {"open": None},
    "NULL for an array": {"tags": None},
    "swapped columns": {"shop": "SHOP 2", "other": "shop 2"},
    "the row of another key": {**valued(6), "id": 5},
    "a row of an earlier time": {**valued(5), "n": 8, "total": "16.50"},
}


def test_right_topics_are_right(audited: Audited) -> None:
    """Without a fault, both sinks are equal."""
    for sink, rows in (("valued", 36), ("shops", 4)):
        found = audited.look(sink)
        assert (found.verdict, found.compared.equal) == ("ok", rows), found


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_value_is_found(fault: str, audited: Audited) -> None:
    """A row with a wrong value is reported with the expected row, the row found, and the source's row."""
    wrong = {**valued(5), **WRONG[fault]}
    audited.valued.insert(wrong)
    found = audited.look("valued")
    audited.valued.insert(valued(5))
    assert (found.verdict, found.compared.different, found.compared.equal) == ("differs", 1, 35), found
    (difference,), ((source,),) = found.compared.first, found.sources
    assert difference.expected is not None
    assert difference.found is not None
    assert (difference.expected["id"], source.row["id"], source.topic) == (5, 5, "av-items")
    assert audited.look("valued").verdict == "ok"


def test_a_missing_row_is_found(audited: Audited) -> None:
    """A row that the topic has deleted although the source has it is reported as expected."""
    audited.valued.delete({"id": 5})
    found = audited.look("valued")
    audited.valued.insert(valued(5))
    assert found.verdict == "differs"
    assert [(each.expected or {}).get("id") for each in found.compared.first] == [5]
    assert found.compared.first[0].found is None


@pytest.mark.parametrize("number", [20, 99], ids=["a lost delete", "an extra row"])
def test_an_extra_row_is_found(number: int, audited: Audited) -> None:
    """A row that the query leaves out, or that no source explains, is reported as found."""
    audited.valued.insert({**valued(5), "id": number})
    found = audited.look("valued")
    audited.valued.delete({"id": number})
    assert found.verdict == "differs"
    assert [(each.expected, (each.found or {}).get("id")) for each in found.compared.first] == [(None, number)]


@pytest.mark.parametrize("planted", [{**valued(5), "n": 7}, valued(5)], ids=["a wrong row", "the right row"])
def test_a_row_in_another_partition_is_found(planted: dict[str, Any], audited: Audited) -> None:
    """A key with rows in two partitions is reported with both places. After a delete in one of them, all is right."""
    audited.valued.insert(planted)
    assert audited.look("valued").verdict == ("ok" if planted == valued(5) else "differs")
    ((own, offset),) = audited.topics.connection.execute(
        'SELECT _partition, _offset FROM "sink:valued" WHERE id = 5'
    ).fetchall()
    key, value = _record(audited, own, offset)
    audited.valued.insert(valued(5))
    sender = Sender({"bootstrap.servers": audited.broker.bootstrap_servers})
    sender.produce("av-valued", value, key, 1 - own)
    assert sender.flush(20) == 0
    found = audited.look("valued")
    assert (found.verdict, found.compared.split, found.compared.different) == ("differs", 1, 2), found
    rows = {each.partition: each.found or {} for each in found.compared.first}
    assert [rows[at]["n"] for at in (own, 1 - own)] == [10, planted["n"]]
    assert all((each.expected or {})["n"] == 10 for each in found.compared.first)
    sender.produce("av-valued", None, key, 1 - own)
    assert sender.flush(20) == 0
    assert audited.look("valued").verdict == "ok"


def _record(audited: Audited, partition: int, offset: int) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record of the topic of `valued`."""
    consumer = Consumer({"bootstrap.servers": audited.broker.bootstrap_servers, "group.id": "verify"})
    with closing(consumer):
        consumer.assign([TopicPartition("av-valued", partition, offset)])
        message = consumer.poll(20)
    assert message is not None
    return message.key(), message.value()


def test_faults_of_a_topic_without_a_key_are_found(audited: Audited) -> None:
    """A duplicate, a lost retraction and an unmatched retraction are found in a retract topic."""
    row = next(iter(audited.topics.connection.execute(_SHOPS).fetchall()))
    right = {"shop": row[0], "items": row[1], "mean": str(row[2])}
    audited.shops.insert(right)
    twice = audited.look("shops")
    audited.shops.delete(right)
    audited.shops.insert({**right, "items": 1})
    stale = audited.look("shops")
    audited.shops.delete({**right, "items": 1})
    audited.shops.delete({**right, "items": 2})
    unmatched = audited.look("shops")
    audited.shops.insert({**right, "items": 2})
    assert [each.verdict for each in (twice, stale, unmatched)] == ["differs"] * 3
    assert [each.compared.equal for each in (twice, stale, unmatched)] == [4, 4, 4]
    assert audited.look("shops").verdict == "ok"


def test_a_sample_compares_some_keys(audited: Audited) -> None:
    """With a sample, only some keys are compared, and the same ones on both sides."""
    found = replace(audited.audit, part=AuditedPart(sample=0.5))
    whole, audited.audit = audited.audit, found
    result = audited.look("valued")
    audited.audit = whole
    assert result.verdict == "ok"
    assert 0 < result.compared.equal < 36


def test_the_command_audits_a_stopped_job(audited: Audited) -> None:
    """The command waits until the job is idle, compares, writes metrics, and ends with 1 if a row differs."""
    job, metrics = audited.topics.job, audited.folder / "rowkind.prom"
    cluster = Cluster(job.brokers)
    ends = cluster.ends(cluster.topics(["av-items"]).partitions)
    extent = json.dumps(Offset(ends, {"av-items": "x"}, dict.fromkeys(ends, 0), 0, 1).to_json())
    last = Progress("audited", "main", 0, "c", 0, "1-a", 1, extent, 2, ["valued", "shops"], ["av-valued", "av-shops"])
    sender = Sender({"bootstrap.servers": audited.broker.bootstrap_servers})
    sender.produce("audited.main.progress", last.to_bytes(), last.key, 0)
    sender.flush()
    arguments = ["verify", str(audited.folder / "job.yaml"), "--metrics", str(metrics)]
    ended = CliRunner().invoke(main, [*arguments, "-o", "json"])
    assert ended.exit_code == 0, ended.output
    assert [json.loads(line)["verdict"] for line in ended.stdout.splitlines()] == ["ok", "ok"]
    assert 'rowkind_verify_differences{job_name="audited",sink="valued"} 0' in metrics.read_text()
    audited.valued.insert({**valued(5), "n": 0})
    audited.valued.flush()
    ended = CliRunner().invoke(main, [*arguments, "valued"])
    audited.valued.insert(valued(5))
    assert ended.exit_code == 1, ended.output
    assert "differs: 1 row; 35 rows as expected" in ended.stdout
    assert "av-items/0@4" in ended.stdout


def test_an_unreachable_broker_ends_with_3(tmp_path: Path) -> None:
    """If no broker answers, the command ends with a code of its own, and no sink is called right."""
    columns, sink = {"id": "BIGINT"}, {"topic": "r", "mode": "append", "sql": "SELECT id FROM t"}
    tables = {"t": {"topic": "t", "mode": "append", "columns": columns}}
    places = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "registry": {"folder": "schemas"}}
    (tmp_path / "job.yaml").write_text(json.dumps({"job": "away", **places, "tables": tables, "sinks": {"r": sink}}))
    ended = CliRunner().invoke(main, ["verify", str(tmp_path / "job.yaml")])
    assert (ended.exit_code, ended.stdout) == (UNREACHABLE, "")
    assert "127.0.0.1:1" in ended.stderr
