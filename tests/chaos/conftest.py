"""Fixtures of the restart scenarios."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.dev.broker import Broker
from tests.chaos.stage import Stage


@pytest.fixture
def seed() -> int:
    """A seed that no run had before; the stage prints it."""
    return random.SystemRandom().randrange(10_000)


@pytest.fixture
def stage(broker: Broker, tmp_path: Path, seed: int) -> Iterator[Stage]:
    """A stage on the test process's broker."""
    made = Stage(broker.bootstrap_servers, tmp_path, f"chaos-{os.getpid()}-{seed}", seed)
    yield made
    made.close()
