"""The example's job from end to end: kcat sends, the image runs, kcat reads; fastavro and two loops check the results.

Broker, schema registry and job are containers. The checks share no code with the product.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import docker
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer

from tests.cluster.s3 import S3
from tests.e2e.containers import ROOT, KafkaContainer, RegistryContainer
from tests.e2e.kcat import Kcat
from tests.e2e.shop import CHAPTERS, SCHEMAS, Event, Reader, Tables, Teller
from tests.run.process import get, until

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

EXAMPLE = ROOT / "examples" / "orders-payments" / "job.yaml"
SECONDS = 180.0
MEMORY = "2g"


@dataclass(frozen=True)
class Shop:
    """The example's job over separate topics, with a sender for its inputs and a reader for its results."""

    folder: Path
    prefix: str
    kafka: KafkaContainer
    teller: Teller
    reader: Reader
    tables: Tables = field(default_factory=Tables)

    @property
    def job(self) -> Path:
        """The job file."""
        return self.folder / "job.yaml"

    def happens(self, events: list[Event]) -> None:
        """Send the events to the topics, and apply them to the expected results."""
        self.tables.apply(events)
        self.teller.tell(events)

    def agrees(self, method: str = "") -> bool:
        """Return whether both result topics have the expected rows, the second one for payments of one method only."""
        return self.reader.retract_topic(
            f"{self.prefix}-order-payments"
        ) == self.tables.order_payments() and self.reader.upsert_topic(
            f"{self.prefix}-paid-orders"
        ) == self.tables.paid_orders(method)

    def differences(self) -> str:
        """Return the actual and the expected rows."""
        return (
            f"retract topic {self.reader.retract_topic(f'{self.prefix}-order-payments')}\n"
            f"     expected {self.tables.order_payments()}\n"
            f"upsert topic  {self.reader.upsert_topic(f'{self.prefix}-paid-orders')}\n"
            f"     expected {self.tables.paid_orders()}\n"
        )


@pytest.fixture
def shop(kafka: KafkaContainer, registry: RegistryContainer, kcat: str, tmp_path: Path) -> Shop:
    """The example's job file, with a prefix for its name and topics. The command line has created its result topics."""
    prefix = tmp_path.name.replace("_", "-")
    text = re.sub(r"(topic: |job: )([\w-]+)", rf"\g<1>{prefix}-\g<2>", EXAMPLE.read_text())
    text = re.sub(r"^registry: .*$", 'registry: {url: "${REGISTRY}"}', text, flags=re.MULTILINE)
    (tmp_path / "job.yaml").write_text(f"{text}\nmemory: {MEMORY}\n")
    schemas = SchemaRegistryClient({"url": registry.url})
    ids = {
        table: schemas.register_schema(f"{prefix}-{table}-value", Schema(json.dumps(schema), "AVRO"))
        for table, schema in SCHEMAS.items()
    }
    topics = {table: f"{prefix}-{table}" for table in SCHEMAS}
    kafka.create_topics(2, *topics.values())
    client = Kcat(kcat, kafka.address)
    reader = Reader(client, lambda number: json.loads(schemas.get_schema(number).schema_str or ""))
    shop = Shop(tmp_path, prefix, kafka, Teller(client, topics, ids), reader)
    created = subprocess.run(
        [sys.executable, "-m", "rowkind", "topics", "create", str(shop.job)],
        cwd=tmp_path,
        env={**os.environ, "KAFKA": kafka.address, "REGISTRY": registry.url, "CHECKPOINT": "unused"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert created.returncode == 0, created.stderr
    tmp_path.chmod(0o755)
    return shop


@pytest.fixture
def volume() -> Iterator[str]:
    """A volume for the checkpoint, which outlives the containers."""
    made = docker.from_env().volumes.create()
    yield made.name
    made.remove()


Runs = Callable[..., AbstractContextManager[DockerContainer]]


@pytest.fixture
def runs(shop: Shop, rowkind_image: str, volume: str) -> Runs:
    """Return a function that runs the job in the product's image, with its checkpoint on a volume."""

    def run(*options: str) -> DockerContainer:
        container = _confined(shop, rowkind_image, *options).with_env("CHECKPOINT", "/var/lib/rowkind/checkpoint")
        return container.with_volume_mapping(volume, "/var/lib/rowkind", "rw")

    return run


def _confined(shop: Shop, image: str, *options: str) -> DockerContainer:
    """Return the job in the product's image.

    It is confined as by the Helm chart, with limited memory, on the broker's network.
    """
    return (
        DockerContainer(image)
        .with_network(shop.kafka.network)
        .with_command(["run", "/etc/rowkind/job.yaml", "--port", "8080", *options])
        .with_envs(KAFKA=KafkaContainer.INSIDE, REGISTRY=RegistryContainer.INSIDE)
        .with_volume_mapping(str(shop.folder), "/etc/rowkind", "ro")
        .with_exposed_ports(8080)
        .with_tmpfs_mount("/tmp")
        .with_kwargs(read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], mem_limit=MEMORY)
    )


def test_the_image_runs_the_job_through_every_chapter_a_kill_a_stop_and_an_upgrade(shop: Shop, runs: Runs) -> None:
    """After each chapter, read while it runs or is down, both topics agree with SQL, and so do those of a new query."""
    first, second, third, fourth, fifth = CHAPTERS
    with runs() as job:
        container = job.get_wrapped_container()
        until(lambda: get(_port(container), "/readyz")[0] == 200, "a ready job", lambda: _said(container), SECONDS)
        orders = f"{shop.prefix}-orders"
        shop.teller.client.produce(orders, [(b"1", b"this is not Avro")], {"op": "+I"})
        for title, events in (first, second, third):
            shop.happens(events)
            _agrees(shop, title, container)
        status, metrics = get(_port(container), "/metrics")
        assert status == 200
        counted = r'^rowkind_rows_in_total\{kind="-U",name="[\w-]+",query="\w+",table="\w+"\} [1-9]'
        assert re.search(counted, metrics, re.MULTILINE), metrics
        for (title, events), end in ((fourth, _kill), (fifth, _stop)):
            end(container)
            shop.happens(events)
            container.start()
            _agrees(shop, title, container)
        said = [_given(command, container, _of_cards(shop)) for command in _of_the_page()]
        assert "orders" in said[0], "a dead letter"
        assert "paid_orders" in said[2], "a sink that would be rebuilt"
        _stop(container)
    (letter,) = shop.teller.client.consume(f"{shop.prefix}-orders-payments-dead-letters")
    assert letter.value == b"this is not Avro"
    assert orders in letter.headers.values(), letter.headers
    shop.job.write_text(_of_cards(shop))
    assert shop.tables.paid_orders() != shop.tables.paid_orders("card")
    with runs("--upgrade") as job:
        container = job.get_wrapped_container()
        _agrees(shop, "another query", container, "card")
        _stop(container)


def test_the_image_goes_on_from_a_checkpoint_on_s3_with_nothing_else_left(
    shop: Shop, rowkind_image: str, tmp_path: Path
) -> None:
    """After a kill, a container with a new volume continues from S3, and downloads no jars, which the image has."""
    (first, second, *_) = CHAPTERS
    network = docker.from_env().networks.get(shop.kafka.network.id)
    with S3(tmp_path / "s3", host=network.attrs["IPAM"]["Config"][0]["Gateway"]) as s3:

        def run() -> DockerContainer:
            told = {**s3.environment, "CHECKPOINT": f"s3a://{s3.bucket}/jobs"}
            return _confined(shop, rowkind_image).with_envs(**told)

        for (title, events), end in ((first, _kill), (second, _stop)):
            shop.happens(events)
            with run() as job:
                container = job.get_wrapped_container()
                _agrees(shop, title, container)
                kept = container.exec_run(["ls", "/var/lib/rowkind/.cache/rowkind"])
                assert b"classes-" in kept.output
                assert b"s3a" not in kept.output
                end(container)


def _of_cards(shop: Shop) -> str:
    return re.sub(r"(FROM orders o JOIN payments p .*)", r"\1 WHERE p.method = 'card'", shop.job.read_text())


def _of_the_page() -> list[str]:
    """Commands for a running pod, from the first code block of the page on Kubernetes."""
    page = (ROOT / "docs" / "how-to" / "manage-on-kubernetes.md").read_text()
    block = re.search(r"(?:^    .*\n)+", page, re.MULTILINE)
    assert block is not None, "the page has no code block"
    return re.findall(r"^    kubectl exec (.*?)(?:   .*)?$", block[0], re.MULTILINE)


def _given(command: str, container: Container, job: str) -> str:
    """Run a command in the container with Docker instead of Kubernetes, and return its output."""
    words = command.replace("shop-rowkind-0 --", str(container.id)).partition(" < job.yaml")[0].split()
    done = subprocess.run(
        ["docker", "exec", *words], input=job, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, (command, done.stderr)
    return f"{done.stdout}{done.stderr}"


def _agrees(shop: Shop, title: str, container: Container, method: str = "") -> None:
    told = f"the result of {title!r}"
    until(lambda: shop.agrees(method), told, lambda: shop.differences() + _said(container), SECONDS)


def _kill(container: Container) -> None:
    container.kill()
    assert container.wait()["StatusCode"] == 137, _said(container)


def _stop(container: Container) -> None:
    container.stop(timeout=60)
    assert container.wait()["StatusCode"] == 0, _said(container)


def _said(container: Container) -> str:
    return container.logs(tail=50).decode(errors="replace")


def _port(container: Container) -> int:
    """Return the current port of the job's pages; Docker assigns another one at each start."""
    container.reload()
    return int(container.ports["8080/tcp"][0]["HostPort"])
