"""The environment of the container tests: a Docker daemon and three images, none of which is pulled.

On a machine that can pull images, ROWKIND_TEST_BASE and ROWKIND_TEST_KAFKA may name public images
(`python:3.11-slim-bookworm`, `apache/kafka:4.1.0`). Without them, `tests/e2e/build-images` makes both. If something is
missing, the tests are skipped with the reason; with ROWKIND_REQUIRE_CONTAINERS=1, as in CI, they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from rowkind.service.machine.ports import free_port
from tests.run.process import until

ROOT = Path(__file__).parents[2]
BASE_IMAGE = os.environ.get("ROWKIND_TEST_BASE", "rowkind-test/base")
KAFKA_IMAGE = os.environ.get("ROWKIND_TEST_KAFKA", "rowkind-test/kafka")
ROWKIND_IMAGE = "rowkind-test/rowkind"

# testcontainers would also start a clean-up container, whose image would have to be pulled.
testcontainers_config.ryuk_disabled = True


def missing(reason: str) -> NoReturn:
    """Skip the test because of `reason`; fail it if container tests are required."""
    if os.environ.get("ROWKIND_REQUIRE_CONTAINERS") == "1":
        pytest.fail(f"container tests are required here: {reason}", pytrace=False)
    pytest.skip(reason)


def require_daemon() -> None:
    """Skip or fail unless a Docker daemon answers and has the base images."""
    if shutil.which("docker") is None:
        missing("there is no docker command")
    if not _succeeds("docker", "version"):
        missing("no Docker daemon answers")
    absent = [image for image in (BASE_IMAGE, KAFKA_IMAGE) if not _succeeds("docker", "image", "inspect", image)]
    if absent:
        missing(f"there is no image {' or '.join(absent)}: run tests/e2e/build-images")


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def build_product() -> str:
    """Build the product's image from the working tree, with Docker's cache of unchanged layers, and return its name."""
    command = ["docker", "build", "--quiet", "--file", "deploy/Dockerfile", "--build-arg", f"BASE={BASE_IMAGE}"]
    built = subprocess.run(
        [*command, "--tag", ROWKIND_IMAGE, "."], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200
    )
    assert built.returncode == 0, f"the image did not build:\n{built.stdout[-2000:]}\n{built.stderr[-4000:]}"
    return ROWKIND_IMAGE


REGISTRY = """\
from http.server import ThreadingHTTPServer
from pathlib import Path
from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.registry_server import _RegistryHandler
handler = type("Handler", (_RegistryHandler,), {"registry": FolderRegistry(Path("/tmp"))})
ThreadingHTTPServer(("", 8081), handler).serve_forever()
"""
"""A program that serves the schema registry of `rowkind dev`, for the Python in the product's image."""


class RegistryContainer:
    """A schema registry in a container.

    `url` is its address on this machine, `INSIDE` the one for containers on `network`.
    """

    INSIDE = "http://registry:8081"

    def __init__(self, network: Network, image: str) -> None:
        container = DockerContainer(image).with_network(network).with_network_aliases("registry")
        started = container.with_kwargs(entrypoint=["python3", "-c", REGISTRY]).with_exposed_ports(8081)
        self._container = started.with_tmpfs_mount("/tmp")

    @property
    def url(self) -> str:
        """The registry's address on this machine."""
        return f"http://127.0.0.1:{self._container.get_exposed_port(8081)}"

    @contextmanager
    def running(self) -> Iterator[RegistryContainer]:
        """Run the registry for the duration of a `with` block, which starts when the registry answers."""
        with self._container:
            until(self._answers, "a registry", lambda: str(self._container.get_logs()))
            yield self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class KafkaContainer:
    """A broker in a container: `address` is for this machine, `INSIDE` for containers on the same `network`."""

    INSIDE = "kafka:9092"

    def __init__(self, network: Network) -> None:
        self.network = network
        self.address = f"127.0.0.1:{free_port()}"
        outside = self.address.rpartition(":")[2]
        settings = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": f"INSIDE://:9092,OUTSIDE://:{outside},CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"INSIDE://{self.INSIDE},OUTSIDE://{self.address}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        }
        container = DockerContainer(KAFKA_IMAGE).with_network(network).with_network_aliases("kafka")
        self.container = container.with_bind_ports(int(outside), int(outside)).with_envs(**settings)

    def create_topics(self, partitions: int, *names: str) -> None:
        """Create topics and wait until they exist."""
        admin = self._admin()
        for topic in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            topic.result()

    @contextmanager
    def running(self) -> Iterator[KafkaContainer]:
        """Run the broker for the duration of a `with` block, which starts when the broker answers."""
        with self.container:
            self._wait()
            yield self

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def _wait(self) -> None:
        deadline = time.monotonic() + 90
        while True:
            try:
                self._admin().list_topics(timeout=2)
            except KafkaException as error:
                if time.monotonic() > deadline:
                    output = b"\n".join(self.container.get_logs()).decode(errors="replace")
                    raise AssertionError(f"the broker does not answer: {error}\n{output[-4000:]}") from None
            else:
                return
