"""A few signals at random moments of a job's life; `python -m tests.chaos.terminate` sends a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.terminate import Terminations

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIMES = 6


def test_signals_at_random_moments(broker: Broker, tmp_path: Path, seed: int) -> None:
    """The process ends within five seconds of each signal, without an error, and the final result is right."""
    print(f"seed {seed}")
    ended = list(Terminations(broker.bootstrap_servers, tmp_path, seed).ends(TIMES))
    assert not [each for each in ended if each.wrong]
    assert len(ended) == TIMES
