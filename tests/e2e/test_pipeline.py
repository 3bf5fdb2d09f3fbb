"""The example's job from end to end: kcat sends, its image works, kcat reads, and fastavro and two loops judge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from tests.e2e.containers import ROOT, KafkaContainer
from tests.e2e.kcat import Kcat
from tests.e2e.shop import CHAPTERS, SCHEMAS, Event, Reader, Tables, Teller
from tests.run.process import get, until

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

EXAMPLE = ROOT / "examples" / "orders-payments" / "job.yaml"
SECONDS = 180.0
MEMORY = "2g"


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
    prefix = "shop"
    text = re.sub(r"(topic: |job: )([\w-]+)", rf"\g<1>{prefix}-\g<2>", EXAMPLE.read_text())
    (tmp_path / "job.yaml").write_text(f"{text}\nmemory: {MEMORY}\n")
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
        [sys.executable, "-m", "rowkind", "topics", "create", str(shop.job)],
        cwd=tmp_path,
        env={**os.environ, "KAFKA": kafka.address, "CHECKPOINT": "unused"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert created.returncode == 0, created.stderr
    return shop


@pytest.fixture
def job_container(shop: Shop, rowkind_image: str) -> Iterator[DockerContainer]:
    """The job in the product's image, confined as by the Helm chart and to its memory, on the broker's network."""
    container = (
        DockerContainer(rowkind_image)
        .with_network(shop.kafka.network)
        .with_command(["run", "/etc/rowkind/job.yaml", "--port", "8080"])
        .with_envs(KAFKA=KafkaContainer.INSIDE, CHECKPOINT="/var/lib/rowkind/checkpoint")
        .with_volume_mapping(str(shop.folder), "/etc/rowkind", "ro")
        .with_exposed_ports(8080)
        .with_tmpfs_mount("/tmp")
        .with_kwargs(read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], mem_limit=MEMORY)
    )
    shop.folder.chmod(0o755)
    with container:
        yield container


def test_the_image_runs_the_job_through_every_chapter_and_a_stop(shop: Shop, job_container: DockerContainer) -> None:
    """After each chapter, one told while it was down, both topics are what SQL says; no row is a dead letter."""
    container = job_container.get_wrapped_container()

    def said() -> str:
        return container.logs(tail=50).decode(errors="replace")

    def agrees_after(title: str) -> None:
        until(shop.agrees, f"the result of {title!r}", lambda: shop.differences() + said(), SECONDS)

    def stop() -> None:
        container.stop(timeout=60)
        assert container.wait()["StatusCode"] == 0, said()

    until(lambda: get(_port(container), "/readyz")[0] == 200, "a ready job", said, SECONDS)
    orders = f"{shop.prefix}-orders"
    shop.teller.client.produce(orders, [(b"1", b"this is not Avro")], {"op": "+I"})
    *chapters, (last, after_the_stop) = CHAPTERS
    for title, events in chapters:
        shop.happens(events)
        agrees_after(title)
    status, metrics = get(_port(container), "/metrics")
    assert status == 200
    counted = r'^rowkind_rows_in_total\{kind="-U",query="\w+",table="\w+"\} [1-9]'
    assert re.search(counted, metrics, re.MULTILINE), metrics
    stop()
    shop.happens(after_the_stop)
    container.start()
    agrees_after(last)
    stop()
    (letter,) = shop.teller.client.consume(f"{shop.prefix}-orders-payments-dead-letters")
    assert letter.value == b"this is not Avro"
    assert orders in letter.headers.values(), letter.headers


def _port(container: Container) -> int:
    """Where the job's pages are just now; Docker takes another port at each start."""
    container.reload()
    return int(container.ports["8080/tcp"][0]["HostPort"])
