"""A few starts from random savepoints and older checkpoints; `python -m tests.chaos.rewind` makes hundreds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from tests.chaos.rewind import episode

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STARTS = 4


def test_starts_from_random_checkpoints(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Result topics equal the recorded batches' results, from any checkpoint and after any end of the run before."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "nobody answers here")
    print(f"seed {seed}")
    starts = list(episode(spark, broker.bootstrap_servers, tmp_path, seed).starts(STARTS))
    assert not [each for each in starts if each.wrong]
    assert len(starts) == STARTS
