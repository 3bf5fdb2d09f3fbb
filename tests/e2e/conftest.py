"""The containers that the end-to-end tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from testcontainers.core.network import Network

from tests.e2e.containers import KafkaContainer, RegistryContainer, build_product, missing, require_daemon


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaContainer]:
    """A broker in a container; tests use topics with different names."""
    require_daemon()
    with Network() as network, KafkaContainer(network).running() as broker:
        yield broker


@pytest.fixture(scope="session")
def rowkind_image() -> str:
    """The name of the product's image, built from the working tree."""
    require_daemon()
    return build_product()


@pytest.fixture(scope="session")
def registry(kafka: KafkaContainer, rowkind_image: str) -> Iterator[RegistryContainer]:
    """A schema registry in a container, on the broker's network."""
    with RegistryContainer(kafka.network, rowkind_image).running() as answering:
        yield answering


@pytest.fixture(scope="session")
def kcat() -> str:
    """The path of kcat, a Kafka client in C that shares no code with Rowkind."""
    found = shutil.which("kcat")
    if found is None:
        missing("kcat is not installed")
    return found
