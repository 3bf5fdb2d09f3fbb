"""Fixtures for tests against the embedded broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import client_columns
from tests.kafka.sinks import MakeSink, fresh_sink
from tests.kafka.tables import Topic


@pytest.fixture
def schemas(tmp_path: Path) -> FolderRegistry:
    """An empty schema registry."""
    return FolderRegistry(tmp_path / "schemas")


@pytest.fixture
def orders(broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry) -> Topic:
    """A topic of orders with one partition."""
    return Topic(new_topic(), broker, schemas)


@pytest.fixture
def make_sink(broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry) -> MakeSink:
    """Return a function that makes sinks over new topics."""
    return lambda **changed: fresh_sink(broker, new_topic, schemas, **changed)


@pytest.fixture(params=["columns", "messages"])
def both_readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read records with the compiled library, and without it."""
    if request.param == "messages":
        monkeypatch.setattr(client_columns, "_library", lambda: None)
