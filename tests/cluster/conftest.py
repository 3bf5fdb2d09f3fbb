"""Fixtures of the tests on a Spark cluster."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.checks import CHECKS
from tests.chaos.stage import Stage, Surroundings
from tests.cluster.spark_cluster import SparkCluster


@pytest.fixture(scope="module")
def driver_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the driver's temporary files, which no other process sees."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture
def stage(broker: Broker, tmp_path: Path, driver_only: Path) -> Iterator[Stage]:
    """All checks in one job, with a new random seed, which the stage prints."""
    seed = random.SystemRandom().randrange(100_000)
    around = Surroundings(disks={"temporary": driver_only})
    with closing(Stage(broker.bootstrap_servers, tmp_path, seed, CHECKS, around)) as stage:
        yield stage


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, driver_only: Path) -> Iterator[SparkCluster]:
    """A master and two machines of one core each, shared by the tests of a module; a test may remove a machine."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), driver_only) as running:
        yield running
