"""The example's job from end to end: kcat sends, `rowkind run` works, kcat reads, and fastavro and two loops judge."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from tests.e2e.containers import ROOT, KafkaContainer, free_port
from tests.e2e.kcat import Kcat
from tests.e2e.running import ROWKIND, Process, until
from tests.e2e.shop import CHAPTERS, SCHEMAS, Event, Reader, Tables, Teller, insert, order
from tests.run.process import get

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

EXAMPLE = ROOT / "examples" / "orders-payments" / "job.yaml"
SECONDS = 180.0

_runs = count(1)


@dataclass(frozen=True)
class Shop:
    """The example's job over topics of its own, with a teller before it and a reader behind it."""

    folder: Path
    prefix: str
    kafka: KafkaContainer
    tables: Tables
    teller: Teller
    reader: Reader

    @property
    def job(self) -> Path:
        """The job file."""
        return self.folder / "job.yaml"

    def environment(self) -> dict[str, str]:
        """What the job file's references stand for on this machine."""
        return {**os.environ, "KAFKA": self.kafka.address, "CHECKPOINT": str(self.folder / "checkpoint")}

    def process(self) -> Process:
        """The job as a process of this machine, not started."""
        return Process(self.job, free_port(), self.folder / "output", self.environment())

    def happens(self, events: list[Event]) -> None:
        """The events are told to the topics and to the expectation."""
        self.tables.apply(events)
        self.teller.tell(events)

    def agrees(self) -> bool:
        """Whether both result topics stand for what the queries say now."""
        return (
            self.reader.retract_topic(f"{self.prefix}-order-payments") == self.tables.order_payments()
            and self.reader.upsert_topic(f"{self.prefix}-paid-orders") == self.tables.paid_orders()
        )

    def differences(self) -> str:
        """What is there and what should be."""
        return (
            f"retract topic {self.reader.retract_topic(f'{self.prefix}-order-payments')}\n"
            f"     expected {self.tables.order_payments()}\n"
            f"upsert topic  {self.reader.upsert_topic(f'{self.prefix}-paid-orders')}\n"
            f"     expected {self.tables.paid_orders()}\n"
        )


@pytest.fixture
def shop(kafka: KafkaContainer, kcat: str, tmp_path: Path) -> Shop:
    """The example's job file with its topics and its name under a prefix, its topics made by the command line."""
    prefix = f"shop{next(_runs)}"
    text = re.sub(r"(topic: |job: )([\w-]+)", rf"\g<1>{prefix}-\g<2>", EXAMPLE.read_text())
    (tmp_path / "job.yaml").write_text(text)
    registry = FolderRegistry(tmp_path / "schemas")
    ids = {
        table: registry.register(f"{prefix}-{table}-value", Record.parse(json.dumps(schema)))
        for table, schema in SCHEMAS.items()
    }
    topics = {table: f"{prefix}-{table}" for table in SCHEMAS}
    kafka.create_topics(2, *topics.values())
    client = Kcat(kcat, kafka.address)
    # A registry of its own for each question, because the job adds to the folder.
    reader = Reader(client, lambda number: FolderRegistry(tmp_path / "schemas").schema_by_id(number).avro)
    shop = Shop(tmp_path, prefix, kafka, Tables(), Teller(client, topics, ids), reader)
    created = subprocess.run(
        [ROWKIND, "topics", "create", str(shop.job)],
        cwd=tmp_path,
        env=shop.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert created.returncode == 0, created.stderr
    return shop


def test_both_results_follow_every_chapter_that_kcat_tells(shop: Shop) -> None:
    """After each chapter the retract and the upsert topic, read committed by kcat, stand for what the SQL says."""
    with shop.process() as running:
        until(running.ready, "a ready job", SECONDS, running.said)
        for title, events in CHAPTERS:
            shop.happens(events)
            until(shop.agrees, f"the result of {title!r}", SECONDS, lambda: shop.differences() + running.said())
        status, metrics = get(running.port, "/metrics")
        assert status == 200
        counted = r'^rowkind_rows_in_total\{kind="-U",query="\w+",table="\w+"\} [1-9]'
        assert re.search(counted, metrics, re.MULTILINE), metrics
        assert running.stop() == 0, running.said()


def test_a_stopped_job_goes_on_where_it_was(shop: Shop) -> None:
    """What happens while the job is down is caught up with after its start, without a duplicate and without a gap."""
    (_, opening), *rest = CHAPTERS
    with shop.process() as running:
        shop.happens(opening)
        until(shop.agrees, "the first result", SECONDS, lambda: shop.differences() + running.said())
        assert running.stop() == 0, running.said()
    for _, events in rest:
        shop.happens(events)
    with shop.process() as running:
        until(shop.agrees, "the result after a restart", SECONDS, lambda: shop.differences() + running.said())
        assert running.stop() == 0, running.said()


def test_a_value_that_is_no_row_becomes_a_dead_letter_and_the_job_goes_on(shop: Shop) -> None:
    """Bytes without framing end in the dead letter topic with their origin, and the rows around them in the result."""
    orders = f"{shop.prefix}-orders"
    letters = f"{shop.prefix}-orders-payments-dead-letters"
    with shop.process() as running:
        shop.happens(insert("orders", order(1, "Ada", "10.00")))
        shop.teller.client.produce(orders, [(b"1", b"this is not Avro")], {"op": "+I"})
        shop.happens(insert("orders", order(2, "Blaise", "20.00")))
        until(shop.agrees, "the result around a bad value", SECONDS, lambda: shop.differences() + running.said())
        assert running.stop() == 0, running.said()
    (letter,) = {message.value: message for message in shop.teller.client.consume(letters)}.values()
    assert letter.value == b"this is not Avro"
    assert orders in letter.headers.values(), letter.headers


@pytest.fixture
def job_container(shop: Shop, rowkind_image: str) -> Iterator[DockerContainer]:
    """The job in the product's image, confined as by the Helm chart, on the broker's network."""
    container = (
        DockerContainer(rowkind_image)
        .with_network(shop.kafka.network)
        .with_command(["run", "/etc/rowkind/job.yaml", "--port", "8080"])
        .with_envs(KAFKA=KafkaContainer.INSIDE, CHECKPOINT="/var/lib/rowkind/checkpoint")
        .with_volume_mapping(str(shop.folder), "/etc/rowkind", "ro")
        .with_exposed_ports(8080)
        .with_tmpfs_mount("/tmp")
        .with_kwargs(read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"])
    )
    shop.folder.chmod(0o755)
    with container:
        yield container


def test_the_image_runs_the_job_and_ends_well_on_sigterm(shop: Shop, job_container: DockerContainer) -> None:
    """In the container the job turns healthy, gives the right result, and ends with 0 when it is asked to stop."""

    def said() -> str:
        return b"\n".join(job_container.get_logs()).decode(errors="replace")[-4000:]

    port = job_container.get_exposed_port(8080)
    until(lambda: get(port, "/readyz")[0] == 200, "a ready job", SECONDS, said)
    for _, events in CHAPTERS:
        shop.happens(events)
    until(shop.agrees, "the result of the container", SECONDS, lambda: shop.differences() + said())
    container = job_container.get_wrapped_container()
    container.stop(timeout=60)
    assert container.wait()["StatusCode"] == 0, said()
