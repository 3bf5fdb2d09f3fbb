"""Sinks without a topic: the log of the job has their changes, or no place has them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from rowkind.service.dev.broker import Broker
from tests.kafka.sinks import committed
from tests.run.process import Ended, Rowkind, get, until
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 400.0
COUNTS = "SELECT stars, COUNT(*) AS n FROM ratings GROUP BY stars"
PRINTED = {"to": "print", "prefix": "stars", "sql": COUNTS}
RATED = {"to": "print", "sql": "SELECT rating_id, stars FROM ratings"}
NOWHERE = {"to": "blackhole", "sql": "SELECT COUNT(*) AS n FROM ratings"}
COUNTED = {"mode": "retract", "key": "stars", "sql": COUNTS}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop without any events yet."""
    return Shop(broker.bootstrap_servers, tmp_path, f"prints-{os.getpid()}-{tmp_path.name}")


def rated(shop: Shop, *numbers: int) -> None:
    """Send ratings with these ids, each with one to three stars."""
    for number in numbers:
        shop.row("ratings", "+I", rating_id=number, stars=number % 3 + 1)
    shop.flush()


def command(shop: Shop, name: str, *names: str) -> Ended:
    """Run a command over the shop's job to its end. `names` come after the job file."""
    with Rowkind(shop.folder / "output", *name.split(), str(shop.folder / "job.yaml"), *names) as running:
        return running.ended(SLOW)


def run(shop: Shop, *arguments: str) -> Rowkind:
    """Run the shop's job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(shop.folder / "job.yaml"), "--port", "0", *arguments)


def stopped(job: Rowkind) -> None:
    """Stop the job, which must end without an error."""
    job.terminate()
    assert job.ended(SLOW).code == 0, job.error


def lines(job: Rowkind) -> Iterator[dict[str, Any]]:
    """Yield the printed changes of a JSON log, each of whose complete lines must be JSON."""
    for line in job.error.splitlines(keepends=True):
        if line.endswith("\n") and (said := json.loads(line))["message"] == "change":
            yield said


def folded(job: Rowkind, sink: str) -> dict[str, int]:
    """Return how often each row occurs after all printed changes of a sink."""
    rows: Counter[str] = Counter()
    for each in lines(job):
        if each["sink"] == sink:
            rows[json.dumps(each["row"])] += 1 if each["op"][0] == "+" else -1
    return {row: count for row, count in rows.items() if count}


def test_a_job_prints_counts_and_discards_changes_besides_a_topic(shop: Shop) -> None:
    """The printed changes fold to the topic's rows, metrics count all changes, and a restart prints only new ones."""
    rated(shop, *range(1, 2_500))
    shop.job({"printed": PRINTED, "nowhere": NOWHERE, "counted": COUNTED})
    with run(shop, "--log", "json") as job:
        wanted = {json.dumps({"stars": stars, "n": 833}): 1 for stars in (1, 2, 3)}
        until(lambda: folded(job, "printed") == wanted, "printed rows", lambda: job.error, SLOW)
        rated(shop, 3_000)
        del wanted[json.dumps({"stars": 1, "n": 833})]
        wanted[json.dumps({"stars": 1, "n": 834})] = 1
        until(lambda: folded(job, "printed") == wanted, "the next row", lambda: job.error, SLOW)
        last = list(lines(job))[-2:]
        assert [(each["op"], each["row"]) for each in last] == [
            ("-U", {"stars": 1, "n": 833}),
            ("+U", {"stars": 1, "n": 834}),
        ]
        assert {each["prefix"] for each in lines(job)} == {"stars"}
        printed = Counter(each["op"] for each in lines(job))
        until(lambda: counted(job, "printed") == printed, "metrics", lambda: get(job.port, "/metrics")[1], SLOW)
        assert counted(job, "nowhere")["+U"] >= 1
        assert counted(job, "counted") == printed
        assert '"to": "print"' in get(job.port, "/status.json")[1]
        stopped(job)
    assert not shop_topics(shop) & {"printed", "nowhere"}
    assert len(committed({"bootstrap.servers": shop.servers}, shop.topic("counted"))) == printed.total()
    with run(shop) as job:
        rated(shop, 3_002)
        line = 'INFO stars> +U {"stars": 3, "n": 834}\n'
        until(lambda: line in job.error, "a printed line", lambda: job.error, SLOW)
        assert job.error.count("INFO stars> ") == 2
        stopped(job)


def counted(job: Rowkind, sink: str) -> Counter[str]:
    """Return how many changes a sink has written according to the metrics, by row kind."""
    metrics = get(job.port, "/metrics")[1]
    found = re.findall(rf'^rowkind_rows_out_total\{{.*sink="{sink}".*\}} (\S+)$', metrics, re.MULTILINE)
    kinds = re.findall(rf'^rowkind_rows_out_total\{{.*kind="([^"]+)".*sink="{sink}".*\}}', metrics, re.MULTILINE)
    return Counter({kind: int(float(count)) for kind, count in zip(kinds, found, strict=True) if float(count)})


def shop_topics(shop: Shop) -> set[str]:
    """Return the topics of the shop, without its name."""
    topics = AdminClient({"bootstrap.servers": shop.servers, "log_level": 0}).list_topics(timeout=30).topics
    return {name.removeprefix(f"{shop.name}-") for name in topics if name.startswith(f"{shop.name}-")}


def test_a_job_whose_sinks_all_lack_a_topic_prints_each_row_at_least_once(shop: Shop) -> None:
    """A killed job continues from its checkpoint, and loses no line. `topics create` and `diff` accept such a job."""
    rated(shop, *range(1, 400))
    shop.job({"rated": RATED, "nowhere": NOWHERE}, batch={"max_rows": 50})
    created = command(shop, "topics create")
    assert created.code == 0, created.error
    with run(shop, "--log", "json") as job:
        until(lambda: len(list(lines(job))) > 100, "some batches", lambda: job.error, SLOW)
        job.kill_driver()
        before = [each["row"]["rating_id"] for each in lines(job)]
        job.kill()
    with run(shop, "--log", "json") as job:
        last = {399}
        until(lambda: last <= {each["row"]["rating_id"] for each in lines(job)}, "the end", lambda: job.error, SLOW)
        until(lambda: set(range(1, 400)) <= {*before, *ids(job)}, "all rows", lambda: job.error, SLOW)
        assert set(before) - set(ids(job)), "the job continued from its checkpoint"
        stopped(job)
    assert command(shop, "diff").output.splitlines() == ["sink rated stays", "sink nowhere stays"]
    refused = command(shop, "consume", "rated")
    assert refused.code == 2
    assert "sink rated has no topic that could be read" in refused.error
    shop.job({"rated": {**RATED, "sql": f"{RATED['sql']} WHERE stars > 1"}, "nowhere": NOWHERE})
    said = command(shop, "diff").output
    assert "sink rated is rebuilt, and prints its complete result" in said
    with run(shop, "--log", "json", "--upgrade") as job:
        wanted = {number for number in range(1, 400) if number % 3}
        until(lambda: set(ids(job)) == wanted, "the complete result", lambda: job.error, SLOW)
        stopped(job)


def ids(job: Rowkind) -> list[int]:
    """Return the ratings that a job has printed."""
    return [each["row"]["rating_id"] for each in lines(job)]
