from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from rowkind.operators.arrangement.store import MemoryStore, digest
from rowkind.operators.columns.block import Block
from rowkind.service.spark.cache import CacheLimits, RunCache
from rowkind.service.spark.errors import StateDamagedError
from rowkind.service.spark.placement import placement
from rowkind.service.spark.store import SparkStore, open_map
from tests.spark.distinct import batch_of, unpacked
from tests.spark.running import Query, alone
from tests.spark.store_contract import CHECKS, NOISE, SMALL, RunChecks


@pytest.mark.parametrize("name", CHECKS)
def test_the_memory_store_keeps_the_contract(name: str) -> None:
    """Every check of the contract passes over a dict, with a restart between the steps."""
    store = MemoryStore()
    for step in CHECKS[name]:
        step(store, False)
        store = store.copy()


def run_on_rocksdb(spark: SparkSession, folder: Path, limits: CacheLimits, cached: bool) -> dict[str, list[str]]:
    """Return the result of each step of each check; every check has its own shard."""
    processor = alone("checks", RunChecks(cached), labels=placement(len(CHECKS)), limits=limits)
    query = Query(spark, folder, processor, shards=len(CHECKS))
    for step in range(max(map(len, CHECKS.values()))):
        query.add(
            {
                shard: [Block(batch_of(("+I", f"{name}|{step}")))]
                for shard, (name, steps) in enumerate(CHECKS.items())
                if step < len(steps)
            }
        )
    query.run()
    results: dict[str, list[str]] = {name: [] for name in CHECKS}
    for block in query.blocks():
        for row in unpacked(block.changes.payload):
            name, result = row.decode().split("|", 1)
            results[name].append(result)
    return results


@pytest.fixture(scope="module")
def with_cache(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The results of the checks over RocksDB and the cache."""
    return run_on_rocksdb(spark, tmp_path_factory.mktemp("cached"), CacheLimits(), cached=True)


@pytest.fixture(scope="module")
def without_cache(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The results of the checks over RocksDB alone."""
    return run_on_rocksdb(spark, tmp_path_factory.mktemp("uncached"), CacheLimits(worker=0, disk=0), cached=False)


@pytest.mark.spark
@pytest.mark.parametrize("name", CHECKS)
def test_the_spark_store_keeps_the_contract(name: str, with_cache: dict[str, list[str]]) -> None:
    """Every check of the contract passes inside a worker, over RocksDB and the cache."""
    assert with_cache[name] == ["passed"] * len(CHECKS[name])


@pytest.mark.spark
@pytest.mark.parametrize("name", CHECKS)
def test_the_spark_store_keeps_the_contract_without_a_cache(name: str, without_cache: dict[str, list[str]]) -> None:
    """Every check of the contract passes inside a worker that has to read each blob from RocksDB."""
    assert without_cache[name] == ["passed"] * len(CHECKS[name])


class Nothing(StatefulProcessor):
    """A processor, which Spark's tester requires."""

    def init(self, handle: object) -> None:
        """Open no state."""

    def handleInputRows(self, *_: object) -> None:  # type: ignore[override]  # noqa: N802 -- Spark's name
        """Do nothing."""


@pytest.fixture
def parts(tmp_path: Path) -> tuple[SparkStore, dict[tuple[str], tuple[bytes]], RunCache]:
    """A store over Spark's in-memory test double of a map, the map's content, and the store's cache."""
    tester = TwsTester(Nothing())
    tester.handle.setGroupingKey(1)
    state = open_map(tester.handle)
    cache = RunCache(tmp_path, CacheLimits())
    state.updateValue(("first",), (b"",))
    state.removeKey(("first",))
    return SparkStore(state, "rows", cache), state.state[1], cache


def test_a_file_lost_from_the_cache_is_fetched_again(parts: tuple, tmp_path: Path) -> None:
    """A blob whose file is missing, truncated or wrong is read from the state store and cached again."""
    store, content, _ = parts
    store.put(digest(NOISE), NOISE)
    path = tmp_path / digest(NOISE)
    state = open_state(content)
    for damage in (path.unlink, lambda: path.write_bytes(b"x"), lambda: path.write_bytes(NOISE.to_pybytes()[:-1])):
        damage()
        cold = SparkStore(state, "rows", RunCache(tmp_path, CacheLimits()))
        assert cold.get(digest(NOISE)) == NOISE
        assert cold.seconds > 0, "the state store was asked"
        assert path.read_bytes() == NOISE.to_pybytes()


def test_other_bytes_in_the_state_store_are_noticed(parts: tuple) -> None:
    """A blob that does not match its name stops the query with a message that says what to do."""
    store, content, cache = parts
    store.put(digest(SMALL), SMALL)
    cache.drop(digest(SMALL))
    (path,) = content
    content[path] = (content[path][0][: -SMALL.size] + b"bad",)
    with pytest.raises(StateDamagedError, match="--reset-state"):
        store.get(digest(SMALL))


def test_large_blobs_leave_no_part_behind(parts: tuple) -> None:
    """All parts of a large blob are deleted from the state store."""
    store, content, _ = parts
    store.put(digest(NOISE), NOISE)
    assert len(content) > 1
    store.delete(digest(NOISE), NOISE.size)
    assert not content


def open_state(content: dict) -> object:
    """Return another handle on a map's content, as the next batch gets it."""
    tester = TwsTester(Nothing())
    tester.handle.setGroupingKey(1)
    state = open_map(tester.handle)
    state.state[1] = content
    return state
