"""Fixtures of the restart scenarios."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.checks import Check
from tests.chaos.stage import Stage

SetStage = Callable[..., Stage]


@pytest.fixture
def seed() -> int:
    """Return a new random seed; the stage prints it."""
    return random.SystemRandom().randrange(100_000)


@pytest.fixture
def set_stage(broker: Broker, tmp_path: Path, seed: int) -> Iterator[SetStage]:
    """Return a function that sets up the stage for some checks, on the test process's broker."""
    with ExitStack() as stack:

        def make(*checks: Check) -> Stage:
            return stack.enter_context(closing(Stage(broker.bootstrap_servers, tmp_path, seed, checks)))

        yield make
