"""A job that Prometheus watches, in which every condition that has an alert occurs once.

One long run, since each start takes a while. In it, a minute of the alerts is a second (`tests.deploy.prometheus`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from rowkind.service.dev.broker import Broker
from rowkind.service.execute.metrics import METRICS
from rowkind.service.machine.ports import free_port
from tests.deploy.prometheus import Prometheus, prometheus, require
from tests.deploy.test_alerts import NAMES
from tests.deploy.test_dashboard import targets
from tests.run.process import Rowkind, get, until

OF_RECORDS = {
    "RowkindDeadLetters",
    "RowkindManyDeadLetters",
    "RowkindFailedRows",
    "RowkindBrokenPromises",
    "RowkindUnmatchedRetractions",
    "RowkindLateRows",
}

LEGENDS = {query: legend for _, query, legend in targets()}
"""The dashboards' queries, and the legend with which each names its series."""

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 400
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TABLES: Mapping[str, Mapping[str, Any]] = {
    "orders": {
        "mode": "retract",
        "exact": True,
        "primary_key": ["order_id"],
        "columns": {"order_id": "BIGINT NOT NULL", "amount": "INT"},
    },
    "payments": {
        "mode": "retract",
        "primary_key": ["payment_id"],
        "columns": {"payment_id": "BIGINT NOT NULL", "order_id": "BIGINT"},
        "ttl": "7d",
    },
    "ratings": {
        "mode": "append",
        "columns": {"rating_id": "BIGINT NOT NULL", "stars": "INT", "at": "TIMESTAMP"},
        "watermark": {"column": "at", "delay": "1s"},
    },
}
SINKS: Mapping[str, Mapping[str, Any]] = {
    "paid": {
        "mode": "retract",
        "key": ["payment_id"],
        "sql": "SELECT p.payment_id, 12 / (o.amount - p.payment_id) AS share "
        "FROM orders o JOIN payments p ON o.order_id = p.order_id",
    },
    "liked": {
        "mode": "append",
        "on_lost": "ignore",
        "sql": "SELECT rating_id, 10 / stars AS tenth FROM ratings",
    },
    "ordered": {
        "mode": "retract",
        "isolated": True,
        "on_lost": "rebuild",
        "partitions": 1,
        "sql": "SELECT order_id, amount FROM orders",
    },
    "minutes": {
        "mode": "append",
        "emit": "final",
        "sql": "SELECT window_start, COUNT(*) AS n "
        "FROM TABLE(TUMBLE(TABLE ratings, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end",
    },
}


class Shop:
    """The topics of the tables, and the job that reads them."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._name, self._numbers = f"watched-{os.getpid()}", itertools.count(100)
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for made in self._admin.create_topics([NewTopic(self._topic(table), 1) for table in TABLES]).values():
            made.result()
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        job = {
            "job": self._name,
            "kafka": {"bootstrap.servers": servers},
            "checkpoint": str(folder / "checkpoint"),
            "dead_letters": {"topic": self._topic("letters")},
            "on_error": "dead_letter",
            "shards": 4,
            "tables": {name: {"topic": self._topic(name), "format": "json", **each} for name, each in TABLES.items()},
            "sinks": {name: {"topic": self._topic(name), "format": "json", **each} for name, each in SINKS.items()},
        }
        self.job = folder / "job.yaml"
        self.job.write_text(json.dumps(job))

    def _topic(self, name: str) -> str:
        return f"{self._name}-{name}"

    def send(self, table: str, value: bytes, kind: bytes = b"+I") -> None:
        """Send a record."""
        self._producer.produce(self._topic(table), value, b"k", headers=[("op", kind)])
        assert self._producer.flush(30) == 0

    def row(self, table: str, kind: str = "+I", **row: Any) -> None:
        """Send a row."""
        self.send(table, json.dumps(row).encode(), kind.encode())

    def rate(self, stars: int = 5, seconds: float = 60) -> None:
        """Send a rating with a time, in seconds from the beginning of 2026."""
        at = (BEGAN + timedelta(seconds=seconds)).isoformat()
        self.row("ratings", rating_id=next(self._numbers), stars=stars, at=at)

    @contextmanager
    def transaction(self, table: str) -> Iterator[None]:
        """Keep a transaction with one record open in the meantime, and abort it."""
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": self._name, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(self._topic(table), b"{}", b"k")
        assert producer.flush(30) == 0
        yield
        producer.abort_transaction(60)

    def sells(self) -> None:
        """Send valid rows."""
        for number in range(1, 4):
            self.row("orders", order_id=number, amount=50)
            self.row("payments", payment_id=number, order_id=number)
        self.row("orders", "-U", order_id=1, amount=50)
        self.row("orders", "+U", order_id=1, amount=60)
        self.rate()

    def loses(self) -> None:
        """Make result topics lose rows: one loses its first record, another is deleted and created again."""
        at = TopicPartition(self._topic("ordered"), 0, 1)
        self._admin.delete_records([at])[at].result()
        topic = self._topic("liked")
        self._admin.delete_topics([topic])[topic].result()
        until(lambda: topic not in self._admin.list_topics(timeout=10).topics, "the end of a topic")
        self._admin.create_topics([NewTopic(topic, 2)])[topic].result()

    def errs(self) -> None:
        """Send invalid rows, unmatched retractions, rows that fail and a late row."""
        self.send("orders", b"no JSON")
        self.send("orders", b"no JSON either", b"+X")
        self.row("orders", "-D", order_id=999, amount=1)
        self.row("payments", "-D", payment_id=999, order_id=1)
        self.row("payments", payment_id=60, order_id=1)
        self.rate(stars=0)
        self.rate(seconds=0)


@dataclass
class Story:
    """What Prometheus has recorded of the job at the end."""

    fired: set[str] = field(default_factory=set)
    texts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The annotations of each alert that has fired."""

    exposed: dict[str, str] = field(default_factory=dict)
    """The type of each metric that the job exposed with a value, by its name."""

    shown: dict[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """The labels of each series that the dashboards' queries returned."""

    def look(self, server: Prometheus) -> None:
        """Record the alerts that are firing now."""
        self.fired |= server.fired()
        self.texts |= {each["labels"]["alertname"]: each["annotations"] for each in server.alerts()}

    def until_fired(
        self, server: Prometheus, job: Rowkind, *alerts: str, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until all of these alerts have fired."""

        def all_of_them() -> bool:
            meanwhile()
            self.look(server)
            return self.fired >= set(alerts)

        until(all_of_them, f"all of {alerts}", lambda: f"only {self.fired}\n{job.error}", SLOW)


@pytest.fixture(scope="module")
def story(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run the job through all conditions, and yield what Prometheus has recorded."""
    require()
    folder, port = tmp_path_factory.mktemp("watched"), free_port()
    shop, told = Shop(broker.bootstrap_servers, folder), Story()
    arguments = ["run", str(shop.job), "--port", str(port)]
    with ExitStack() as stack:
        with Rowkind(folder / "output", *arguments) as job:
            _until_ready(job, port)
            server = stack.enter_context(prometheus(folder, f"127.0.0.1:{port}"))
            fires = partial(told.until_fired, server, job)
            until(lambda: _sum(server, "rowkind_up") > 0, "the first scrape", lambda: job.error)
            shop.sells()
            # The first rating must be in a separate batch: a row is not late relative to a row of the same batch.
            for results in ('rowkind_rows_out_total{sink="liked"}', 'rowkind_rows_out_total{sink="paid"}'):
                until(partial(lambda of: _sum(server, of) > 0, results), f"{results} > 0", lambda: job.error, SLOW)
            told.look(server)
            assert not told.fired & OF_RECORDS
            shop.errs()
            fires(*OF_RECORDS)
            told.exposed = dict(_exposed(port))
            told.shown = {query: [labels for labels, _ in server.ask(_filled(query))] for query in LEGENDS}
            with shop.transaction("payments"):
                fires("RowkindPartitionHeld")
            with _stopped(broker.pid):
                fires("RowkindWaits")
            shop.loses()
            fires("RowkindRebuilt", "RowkindIncompleteTopic")
            _until_ready(job, port)
            os.kill(job.java(), signal.SIGSTOP)
            fires("RowkindStalled", "RowkindFallsBehind", "RowkindWatermarkStands", meanwhile=shop.rate)
            # On a slow machine RowkindQueryDown has already fired: a rebuild takes longer than the two seconds allowed
            # here.
            os.kill(job.java(), signal.SIGKILL)
            fires("RowkindQueryDown", "RowkindQueryRestarts")
            assert "RowkindKeepsEnding" not in told.fired
        fires("RowkindDown")
        # The same job again, in a service with a second file that is invalid.
        jobs = folder / "jobs"
        jobs.mkdir()
        (jobs / "watched.yaml").write_text(shop.job.read_text())
        (jobs / "broken.yaml").write_text("job: broken")
        with Rowkind(folder / "output", "run", str(jobs), *arguments[2:]) as job:
            fires = partial(told.until_fired, server, job)
            fires("RowkindKeepsEnding", "RowkindJobDown")
            assert "RowkindGone" not in told.fired
        server.forget()
        fires("RowkindGone")
        yield told


def _until_ready(job: Rowkind, port: int) -> None:
    def ready() -> bool:
        assert job.running, job.error
        return get(port, "/readyz")[0] == 200

    until(ready, "a ready job", lambda: job.error, SLOW)


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _exposed(port: int) -> Iterator[tuple[str, str]]:
    for family in text_string_to_metric_families(get(port, "/metrics")[1]):
        if family.samples:
            yield family.name + ("_total" if family.type == "counter" else ""), family.type


def _filled(query: str) -> str:
    """Return a query with Grafana's variables filled in, for the last minute."""
    filled = (
        query.replace("$instance", ".*")
        .replace("$job", ".*")
        .replace("$__rate_interval", "1m")
        .replace("[15m]", "[1m]")
    )
    assert "$" not in filled
    return filled


def _sum(server: Prometheus, metric: str) -> float:
    return sum(value for _, value in server.ask(f"sum({metric})"))


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_fires_when_its_reason_is_there(story: Story, alert: str) -> None:
    """Every alert fires, and its texts have a value for each variable."""
    assert alert in story.fired
    for text in story.texts[alert].values():
        assert not re.search(r"\{\{|<no value>|<error", text), text


def test_the_job_exposes_the_metrics_of_the_list_and_no_others(story: Story) -> None:
    """Each listed metric has a value once every condition has occurred, and has the type that the list gives."""
    assert story.exposed == {metric.name: metric.kind for metric in METRICS}


@pytest.mark.parametrize("query", LEGENDS)
def test_a_query_of_a_dashboard_finds_what_its_legend_names(story: Story, query: str) -> None:
    """Each query returns at least one series from a job that does everything, with a value for each label."""
    series = story.shown[query]
    assert series
    wanted = set(re.findall(r"\{\{(\w+)\}\}", LEGENDS[query]))
    assert all(wanted <= labels.keys() for labels in series)
