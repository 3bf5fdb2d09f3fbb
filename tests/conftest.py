"""Fixtures and pytest hooks that several folders of tests share."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from rowkind.service.spark.session import session
from tests.parts import PART, in_part
from tests.run.process import until
from tests.seeds import few

LONGEST = ("e2e", "cluster", "chaos", "upgrade", "run", "cdc", "spark", "kafka", "system", "docs", "examples", "plan")
"""The folders whose tests take seconds each, or must run in one process; the longest first."""
WORKER_MEMORY = 4 << 30
"""The bytes of memory that a test process needs at most, with its broker, its Spark session and a job."""
SAMPLED = {"oracle": 1, "laws": 1, "flink": 8, "matrix": 12}
"""How many parameters of each test a quick run takes in these folders, unless the mark `sampled` has another number."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of test processes: one per core for `-n logical`, half as many again for `-n auto`.

    Tests that start jobs wait a quarter of the time. Fewer processes leave cores idle, and more end no earlier.
    """
    cores = len(os.sched_getaffinity(0))
    if config.option.numprocesses == "logical":
        return cores
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores * 3 // 2, memory // WORKER_MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sample the tests; give each process whole modules of those that need Spark or a broker, the longest first.

    Each process has its own Spark session and broker, if any, and one process plans all cases of `tests/plan`. The many
    short tests come last and even out the load. If this run is one of several parts, each part has whole modules.
    """
    items.sort(key=_turn)
    mine = in_part([_together(each) for each in items], *PART)
    sampled = {each for _, tests in itertools.groupby(items, _function) for each in _sample(list(tests))}
    taken = {each for each in sampled if _together(each) in mine}
    config.hook.pytest_deselected(items=[each for each in items if each not in taken])
    items[:] = [each for each in items if each in taken]
    for item in items:
        shares = any(item.get_closest_marker(shared) for shared in ("spark", "kafka"))
        if (shares or _folder(item) == "plan") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0] if shares else "plan"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if xdist groups are ignored because pytest-xdist is not active: every process would set up everything."""
    if session.config.getoption("loadgroup", default=False):
        for item in session.items:
            assert not item.get_closest_marker("xdist_group") or "@" in item.nodeid, f"{item.nodeid} has no group"


def _together(item: pytest.Item) -> str:
    """Return a name of the tests that belong to the same part: those of a module, of a group, or of `tests/plan`."""
    group = item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else "plan" if _folder(item) == "plan" else item.nodeid.partition("::")[0]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _sample(tests: list[pytest.Item]) -> Sequence[pytest.Item]:
    """Return all tests of a function, or only a few if it has many similar ones."""
    mark = tests[0].get_closest_marker("sampled")
    if mark is None and _folder(tests[0]) not in SAMPLED:
        return tests
    return few(tests, mark.args[0] if mark else SAMPLED[_folder(tests[0])])


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _turn(item: pytest.Item) -> int:
    folder = _folder(item)
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Start one real Kafka broker for the whole test process; tests use topics with different names."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    """Return an admin client of the test process's broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


_numbers = itertools.count()


@pytest.fixture
def new_topic(admin: AdminClient) -> Callable[..., str]:
    """Return a function that creates a new topic; keyword arguments are topic settings with underscores for dots."""

    def make(partitions: int = 1, **settings: object) -> str:
        name = f"topic-{os.getpid()}-{next(_numbers)}"
        config = {setting.replace("_", "."): str(value) for setting, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()
        until(lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == partitions, f"topic {name}")
        return name

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start the one Spark session of the test process: two cores, two partitions, and one retry per failed task."""
    running = session(
        "tests", master="local[2,2]", parallelism=2, checkpoint=str(tmp_path_factory.mktemp("checkpoints"))
    )
    yield running
    running.stop()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for temporary files, whose path is as short as usual, because sockets lie below it."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
