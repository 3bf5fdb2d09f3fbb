"""A topic that is deleted under a running job.

The job waits for a limited time, and can start over with the new topic.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 400.0
LIKED = {"mode": "retract", "sql": "SELECT rating_id, stars FROM ratings"}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop with one rating."""
    made = Shop(broker.bootstrap_servers, tmp_path, f"vanished-{os.getpid()}-{tmp_path.name}", 1)
    made.row("ratings", "+I", rating_id=1, stars=5)
    made.flush()
    return made


def run(shop: Shop, job: Path) -> Rowkind:
    """Run the job on any free port."""
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0")


def test_a_topic_that_vanishes_is_waited_for_and_read_anew(shop: Shop, admin: AdminClient) -> None:
    """The job reports the wait and is not ready, then has the results of the new topic without being restarted."""
    job = shop.job({"liked": LIKED}, tables={"ratings": shop.table("ratings", start={"on_recreated": "restart"})})
    name = shop.topic("ratings")
    with run(shop, job) as running, closing(Results(shop, "liked")) as results:
        until(lambda: results.rows() == Counter([(1, 5)]), "the first row", lambda: running.error, SLOW)
        port = running.port
        admin.delete_topics([name])[name].result()

        def waits() -> bool:
            assert running.running, running.error
            return get(port, "/readyz")[0] == 503 and f"topic {name}".lower() in get(port, "/readyz")[1].lower()

        until(waits, "a wait for the topic", lambda: f"{get(port, '/readyz')}\n{running.error}", SLOW)
        assert get(port, "/healthz")[0] == 200
        until(lambda: name not in admin.list_topics(timeout=10).topics, "the end of the topic")
        admin.create_topics([NewTopic(name, 2, 1)])[name].result()
        until(lambda: name in admin.list_topics(timeout=10).topics, "the new topic")
        shop.row("ratings", "+I", rating_id=2, stars=4)
        shop.flush()
        until(lambda: results.rows() == Counter([(2, 4)]), "the new row alone", lambda: running.error, SLOW)
        assert not results.flaws
        until(lambda: get(port, "/readyz")[0] == 200, "a job that is ready", lambda: running.error, SLOW)
        running.terminate()
        assert running.ended().code == 0, running.error


def test_a_topic_that_stays_away_ends_the_job(shop: Shop, admin: AdminClient) -> None:
    """The job ends after the configured outage, and the message says what to do."""
    job = shop.job({"liked": LIKED}, kafka={"bootstrap.servers": shop.servers, "outage": "5s"})
    name = shop.topic("ratings")
    with run(shop, job) as running, closing(Results(shop, "liked")) as results:
        until(lambda: results.rows() == Counter([(1, 5)]), "the first row", lambda: running.error, SLOW)
        admin.delete_topics([name])[name].result()
        ended = running.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "Traceback" not in ended.error
    for told in (name, "has waited", "on_recreated: restart", "--reset-state"):
        assert told in ended.error, ended.error
