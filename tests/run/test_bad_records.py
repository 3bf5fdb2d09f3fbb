"""A running job turns every record that is not a valid row into a dead letter with its origin, and processes the rest.

One job serves the whole module. The tests also check what the job's pages show while it runs and when it has caught up.
"""

from __future__ import annotations

import html
import json
import os
import re
import socket
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from rowkind.service.monitoring.status import JobStatus
from tests.kafka.sinks import committed
from tests.run.process import Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import Shop, Told

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAID = "SELECT p.payment_id, o.order_id, o.amount FROM orders o JOIN payments p ON o.order_id = p.order_id"
SINKS = {
    "paid": {"mode": "retract", "key": "payment_id", "sql": PAID},
    "liked": {"mode": "append", "sql": "SELECT rating_id, stars FROM ratings"},
    "shelves": {"mode": "upsert", "key": "item", "sql": "SELECT item, pieces FROM stock"},
}


@dataclass
class Story:
    """The running job, the records sent to it, and the records it wrote."""

    shop: Shop
    job: Rowkind
    port: int
    temporary: Path
    """The folder for the job's temporary files."""

    early: dict[str, int]
    """The first status codes of `/healthz` and `/readyz`."""

    bad: dict[str, Told] = field(default_factory=dict)
    """The invalid records, by what is wrong with each."""

    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of good rows sent, by table and row kind."""

    letters: list[Any] = field(default_factory=list)

    def good(self, table: str, kind: str, **row: Any) -> None:
        """Send a valid row."""
        self.shop.row(table, None if table == "stock" else kind, **row)
        self.sent[table, kind] += 1

    def letter(self, wrong: str) -> Any:
        """Return the one dead letter for an invalid record."""
        told = self.bad[wrong]
        origin = {
            "__connect.errors.topic": told.topic,
            "__connect.errors.partition": str(told.partition),
            "__connect.errors.offset": str(told.offset),
        }
        found = [letter for letter in self.letters if origin.items() <= _text(letter).items()]
        assert len(found) == 1, f"{len(found)} dead letters for {wrong}: {[_text(each) for each in found]}"
        return found[0]


@pytest.fixture(scope="module")
def story(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A job that has read every kind of invalid record among good ones, and has caught up."""
    shop = Shop(broker.bootstrap_servers, tmp_path_factory.mktemp("shop"), f"bad-{os.getpid()}")
    job = shop.job(SINKS, unmatched="dead_letter", batch={"max_rows": 10})
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="bad-") as temporary,
        Rowkind(shop.folder / "output", "run", str(job), "--port", str(port), TMPDIR=temporary) as running,
    ):
        until(lambda: get(port, "/healthz")[0] != 0, "the first answer", lambda: running.error)
        early = {"healthz": get(port, "/healthz")[0], "readyz": get(port, "/readyz")[0]}
        told = Story(shop, running, port, Path(temporary), early)
        _happens(told)
        results = {name: Results(shop, name) for name in SINKS}

        def caught_up() -> bool:
            assert running.running, running.error
            told.letters = committed({"bootstrap.servers": shop.servers}, shop.topic("dead-letters"))
            done = all(result.rows() == RIGHT[name] for name, result in results.items())
            return done and len(told.letters) >= len(told.bad) and not _lag(told)

        until(lambda: get(port, "/readyz")[0] == 200, "a ready job", lambda: running.error, 400)
        until(caught_up, "the results", lambda: f"{[result.rows() for result in results.values()]}{running.error}", 400)
        for result in results.values():
            assert not result.flaws
            result.close()
        yield told


RIGHT = {
    "paid": Counter({(1, 1, Decimal("11.00")): 1, (2, 2, Decimal("20.00")): 1}),
    "liked": Counter({(1, 5): 1, (2, None): 1}),
    "shelves": Counter({("nails", 70): 1}),
}


def _happens(story: Story) -> None:
    """Send invalid records between good ones, to every table."""
    shop, bad = story.shop, story.bad
    amount = Decimal("10.00")
    first = {"order_id": 1, "customer": "Ada", "amount": amount, "status": "new", "placed": None}
    second = first | {"order_id": 2, "customer": "Blaise", "amount": Decimal("20.00")}
    story.good("orders", "+I", **first)
    plus = [("op", b"+I"), ("trace", b"\x00\xff"), ("trace", None)]
    value = shop.value("orders", first)
    bad["no framing"] = shop.tell("orders", b"k", b"this is not Avro", plus)
    bad["unknown schema"] = shop.tell("orders", None, b"\0\x7f\xff\xff\xff" + value[5:], plus)
    bad["cut short"] = shop.tell("orders", b"", value[:-2], plus)
    bad["no value"] = shop.tell("orders", b"1", None, plus)
    bad["no row kind"] = shop.tell("orders", b"1", value)
    bad["unknown row kind"] = shop.tell("orders", b"1", value, [("op", b"+X")])
    story.good("orders", "+I", **second)
    story.good("orders", "-U", **first)
    story.good("orders", "+U", **(first | {"amount": Decimal("11.00")}))
    for number, paid_for in ((1, 1), (2, 2), (3, None)):
        story.good("payments", "+I", payment_id=number, order_id=paid_for, paid=amount, method="card")
    bad["unmatched"] = shop.row("payments", "-D", payment_id=9, order_id=9, paid=amount, method="card")
    story.sent["payments", "-D"] += 1
    story.good("ratings", "+I", rating_id=1, stars=5)
    bad["retraction in an append table"] = shop.row("ratings", "-U", rating_id=1, stars=5)
    story.good("ratings", "+I", rating_id=2, stars=None)
    for pieces in (50, 70):
        story.good("stock", "+U", item="nails", pieces=pieces)
    bad["a delete without a readable key"] = shop.tell("stock", b"nails", None)
    shop.flush()


STAGES = {
    "no framing": ("framing", "UndecodableRowError", "0x74"),
    "unknown schema": ("schema", "UndecodableRowError", "2147483647"),
    "cut short": ("value", "UndecodableRowError", ""),
    "no value": ("framing", "UndecodableRowError", "no value"),
    "no row kind": ("row kind", "UndecodableRowError", "no header 'op'"),
    "unknown row kind": ("row kind", "UndecodableRowError", "b'+X'"),
    "retraction in an append table": ("changelog", "UndecodableRowError", "has mode append"),
    "a delete without a readable key": ("framing", "UndecodableRowError", ""),
}


@pytest.mark.parametrize("wrong", STAGES)
def test_a_bad_record_is_a_dead_letter_with_its_origin(story: Story, wrong: str) -> None:
    """The letter keeps key, value and headers unchanged; further headers give the origin and the error."""
    letter, told = story.letter(wrong), story.bad[wrong]
    assert (letter.key(), letter.value()) == (told.key, told.value)
    headers = letter.headers()
    assert headers[: len(told.headers)] == told.headers
    assert all(name.startswith("__connect.errors.") for name, _ in headers[len(told.headers) :])
    stage, error, message = STAGES[wrong]
    said = _text(letter)
    assert said["__connect.errors.stage"] == stage
    assert said["__connect.errors.exception.class.name"] == error
    assert message in said["__connect.errors.exception.message"]
    assert said["__connect.errors.connector.name"] == story.shop.name
    assert said["__connect.errors.task.id"] == "main"


def test_a_retraction_that_finds_nothing_is_a_dead_letter_with_its_origin(story: Story) -> None:
    """The record decodes, and fails where old rows are looked up; the letter still has its origin."""
    said = _text(story.letter("unmatched"))
    assert said["__connect.errors.exception.class.name"] == "UnmatchedRetraction"
    assert "-D of a row that does not exist" in said["__connect.errors.exception.message"]
    assert json.loads(story.letter("unmatched").value()) == {"payment_id": 9, "order_id": 9}


def test_every_bad_record_has_one_dead_letter(story: Story) -> None:
    """No record has two dead letters, even across many batches."""
    assert len(story.letters) == len(story.bad)


def test_the_metrics_count_what_was_sent_and_written(story: Story) -> None:
    """Prometheus' own parser reads the metrics, and the counts of rows and dead letters equal those of the topics."""
    metrics = _metrics(story)
    read: Counter[tuple[str, str]] = Counter()
    for labels, value in metrics["rowkind_rows_in_total"]:
        read[labels["table"], labels["kind"]] += int(value)
    assert read == story.sent
    for name in SINKS:
        results = Results(story.shop, name)
        results.rows()
        results.close()
        written: Counter[str] = Counter()
        for labels, value in metrics["rowkind_rows_out_total"]:
            if labels["sink"] == name:
                written[{"+U": "upsert", "-D": "delete"}[labels["kind"]] if name == "shelves" else labels["kind"]] += (
                    int(value)
                )
        assert written == results.kinds
    reasons = Counter(
        {labels["reason"]: int(value) for labels, value in metrics["rowkind_dead_letters_total"] if value}
    )
    assert sum(int(value) for _, value in metrics["rowkind_dead_letters_total"]) == len(STAGES)
    assert reasons.keys() == {stage for stage, _, _ in STAGES.values()}
    assert sum(int(value) for _, value in metrics["rowkind_dead_letters_written_total"]) == len(story.bad)
    assert sum(int(value) for _, value in metrics["rowkind_unmatched_retractions_total"]) == 1


def test_the_lag_is_nothing_once_all_is_read(story: Story) -> None:
    """The lag is 0 for each partition of every topic, and the one query of all sinks reads each topic once."""
    lag = _metrics(story)["rowkind_lag_rows"]
    assert {(labels["query"], labels["topic"]) for labels, _ in lag} == {
        ("main", story.shop.topic(table)) for table in ("orders", "payments", "ratings", "stock")
    }
    assert len(lag) == 8
    assert all(value == 0 for _, value in lag)


def test_a_job_is_healthy_at_once_and_ready_once_it_works(story: Story) -> None:
    """`/healthz` answers 200 from the first moment, and `/readyz` only when every query has made progress."""
    assert story.early == {"healthz": 200, "readyz": 503}
    assert get(story.port, "/readyz")[0] == 200
    assert get(story.port, "/healthz")[0] == 200
    assert get(story.port, "/nothing")[0] == 404


def test_the_status_page_has_the_plan_of_every_sink(story: Story) -> None:
    """The page and its JSON form show the state of the query, and what every step does and keeps."""
    code, page = get(story.port, "/")
    assert code == 200
    (query,) = JobStatus.from_json(get(story.port, "/status.json")[1]).queries
    assert {sink.name for sink in query.sinks} == set(SINKS)
    assert all(table.read.rows for table in query.tables)
    assert all(step.taken.rows and step.state_rows for step in query.operators)
    assert any(table.dead_letters for table in query.tables)
    text = html.unescape(page)
    for name in SINKS:
        assert name in text
    assert story.shop.name in text
    assert "payment_id" in text
    assert "keeps" in text


def test_the_port_is_for_this_machine_only(story: Story) -> None:
    """Without `--host`, another address of the same machine gets no answer."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", story.port), timeout=10)


def test_dead_letters_are_listed_and_shown(story: Story) -> None:
    """Without a terminal the output is JSON, and a value is shown as a row if its schema is known."""
    job = str(story.shop.folder / "job.yaml")
    with Rowkind(story.shop.folder / "output", "dead-letters", "list", job) as listed:
        ended = listed.ended(60)
    assert ended.code == 0, ended.error
    lines = [json.loads(line) for line in ended.output.splitlines()]
    assert len(lines) == len(story.letters)
    bad = story.bad["no row kind"]
    (line,) = (each for each in lines if each["origin"] == f"{bad.topic}:{bad.partition}:{bad.offset}")
    assert (line["stage"], line["replayed"]) == ("row kind", False)
    with Rowkind(story.shop.folder / "output", "dead-letters", "show", job, line["letter"]) as shown:
        ended = shown.ended(60)
    assert ended.code == 0, ended.error
    letter = json.loads(ended.output)
    assert (letter["key"], letter["value"]["customer"], letter["headers"]) == (1, "Ada", [])


def test_a_clean_run_says_nothing_but_its_own(story: Story) -> None:
    """Every line on standard error is Rowkind's, none is Spark's, Py4J's or librdkafka's, even if all get a SIGTERM."""
    story.job.terminate_all()
    ended = story.job.ended()
    assert ended.code == 0
    assert not ended.output
    # The records that are no rows are most of the first ones, which is reported.
    ratio = re.compile(r" ERROR table \w+: \d+% of its last \d+ records are dead letters ")
    assert all(" INFO " in line or ratio.search(line) for line in ended.error.splitlines()), ended.error
    assert [line.partition(" INFO ")[2] for line in ended.said[-2:]] == ["finishing the batch", "stopped"]
    batches = re.findall(r" INFO batch query=main number=(\d+) seconds=[\d.]+ rows_in=\d+ rows_out=\d+ ", ended.error)
    numbers = [int(number) for number in batches]
    assert numbers
    assert numbers == sorted(set(numbers))
    until(
        lambda: not list(story.temporary.iterdir()),
        "the end of its temporary files",
        lambda: str([*story.temporary.rglob("*")]),
        seconds=30,
    )


def _text(letter: Any) -> dict[str, str]:
    return {
        name: value.decode() for name, value in letter.headers() or () if name.startswith("__connect.errors.") and value
    }


def _metrics(story: Story) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return all samples of the metrics page, by name."""
    code, text = get(story.port, "/metrics")
    assert code == 200
    samples: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name].append((sample.labels, sample.value))
    return samples


def _lag(story: Story) -> float:
    """Return the number of rows still to be read; at least 1 while the lag is not known."""
    lag = _metrics(story)["rowkind_lag_rows"]
    return sum(value for _, value in lag) if len(lag) == 8 else 1
