"""The processor in real queries on RocksDB: results, restarts, failures, deletion, errors."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from rowkind.operators.arrangement.store import BlobStore, MemoryStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes
from rowkind.operators.operator import Output
from rowkind.service.execute.metrics import sample
from rowkind.service.spark.errors import surfaced
from rowkind.service.spark.placement import placement
from rowkind.service.spark.store import MAP
from tests.spark.distinct import Distinct, batch_of, by_bytes, changes, fold, unpacked
from tests.spark.running import SINK, Query, alone

pytestmark = pytest.mark.spark

SHARDS = 3
LABELS = placement(SHARDS)
UNMATCHED = sample("rowkind_unmatched_retractions_total", sink=SINK, operator="distinct")


def query(spark: SparkSession, folder: Path, operator: Distinct | None = None, **options: Any) -> Query:
    """Return a query of the test operator."""
    processor = alone("distinct", operator or Distinct(), labels=LABELS, **options)
    return Query(spark, folder, processor, SHARDS)


def random_batches(seed: int, batches: int) -> list[dict[int, list[Changes]]]:
    """Return batches of random changes by shard, with duplicates, retractions and unmatched retractions."""
    print("seed", seed)
    dice = random.Random(seed)
    result = []
    for batch in range(batches):
        rows = [(dice.choice(["+I", "+I", "-D"]), f"row {dice.randrange(30)}") for _ in range(dice.randrange(1, 60))]
        parts = changes(*rows, start=batch * 100).split(SHARDS)
        result.append({shard: [part] for shard, part in enumerate(parts) if len(part)})
    return result


def as_blocks(batch: Mapping[int, list[Changes]]) -> dict[int, list[Block]]:
    """Return the batch with its changes in blocks."""
    return {shard: [Block(Batch(part)) for part in parts] for shard, parts in batch.items()}


def in_memory(batches: list[dict[int, list[Changes]]], operator: Distinct | None = None) -> list[Output]:
    """Return the operator's output over memory stores, in order of batches and shards."""
    operator = operator or Distinct()
    stores = [{"rows": MemoryStore()} for _ in range(SHARDS)]
    return [
        operator.process(Batch(Changes.concat(parts)), stores[shard], now)
        for now, batch in enumerate(batches, start=1)
        for shard, parts in sorted(batch.items())
    ]


def test_state_that_moves_to_other_partitions_is_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Every batch emits the same rows after Spark's tool has moved the state to more or fewer partitions."""
    batches = random_batches(seed=20_262, batches=8)
    expected = in_memory(batches)
    running = query(spark, tmp_path)
    for number, tasks in enumerate((2, 4, 1, 2)):
        if number:
            spark._streamingCheckpointManager.repartition(str(tmp_path / "checkpoint"), tasks)
        running.add(*map(as_blocks, batches[2 * number : 2 * number + 2]))
        running.run()
    assert running.folded() == fold([by_bytes(output.rows) for output in expected])
    unmatched = sum(block.counters.get(UNMATCHED, 0) for block in running.blocks())
    assert unmatched == sum(len(output.unmatched) for output in expected)


def test_memory_and_rocksdb_agree_and_a_restart_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Every batch emits the same rows over RocksDB as over memory, with the query stopped in the middle."""
    batches = random_batches(seed=20_261, batches=6)
    expected = in_memory(batches)
    running = query(spark, tmp_path)
    running.add(*map(as_blocks, batches[:3]))
    running.run()
    running.add(*map(as_blocks, batches[3:]))
    running.run()
    assert len(running.outputs) == 6
    assert running.folded() == fold([by_bytes(output.rows) for output in expected])
    unmatched = sum(block.counters.get(UNMATCHED, 0) for block in running.blocks())
    assert unmatched == sum(len(output.unmatched) for output in expected) > 0
    for label, block in (
        (label, block) for out in running.outputs.values() for label, blocks in out.items() for block in blocks
    ):
        assert label in LABELS
        assert len(block.changes) == 0 or set((block.changes.hash % SHARDS).tolist()) == {label % SHARDS}


@dataclass(frozen=True)
class Failing(Distinct):
    """Fails after its work is done, as long as a file exists; with `once`, the first failure removes the file."""

    flag: str = ""
    once: bool = False

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Work, write state, and then fail."""
        output = super().process(batch, stores, now)
        flag = Path(self.flag)
        rows = set(unpacked(batch.changes.payload))
        if {b"poison", b"b"} <= rows:
            with flag.with_name("times").open("a") as file:
                file.write(f"{now}\n")
        if b"poison" in rows and flag.exists():
            if self.once:
                flag.unlink()
            raise RuntimeError("failed on purpose")
        return output


@pytest.mark.parametrize("once", [True, False], ids=["the task is tried again", "the query is started again"])
def test_a_batch_that_failed_leaves_no_trace(spark: SparkSession, tmp_path: Path, once: bool) -> None:
    """State and output after a failure in mid-batch are the same as those of a run without a failure."""
    flag = tmp_path / "fail"
    flag.touch()
    rows = [("+I", "a"), ("+I", "a"), ("+I", "poison"), ("-D", "b")]
    batches: list[dict[int, list[Changes]]] = [
        {0: [changes(("+I", "b"), ("+I", "c"))], 1: [changes(("+I", "d"))]},
        {0: [changes(*rows)], 1: [changes(("-D", "d"), ("+I", "e"))]},
        {0: [changes(("-D", "a"), ("-D", "poison"))], 1: [changes(("-D", "e"))]},
    ]
    running = query(spark, tmp_path, Failing(flag=str(flag), once=once))
    running.add(*map(as_blocks, batches))
    if once:
        running.run()
    else:
        with pytest.raises(StreamingQueryException, match="failed on purpose"):
            running.run()
        assert sorted(running.outputs) == [0]
        flag.unlink()
        running.run()
    assert not flag.exists()
    first, *again = map(int, flag.with_name("times").read_text().split())
    assert time.time() * 1000 - 600_000 < first
    assert set(again) == {first}, "what is done again is done at the same time"
    assert running.folded() == fold([by_bytes(output.rows) for output in in_memory(batches)]) == {b"a": 1, b"c": 1}
    assert sum(block.counters.get(UNMATCHED, 0) for block in running.blocks()) == 0


def stored(spark: SparkSession, folder: Path) -> int:
    """Return the number of entries in the state store."""
    reader = spark.read.format("statestore").option("stateVarName", MAP)
    return reader.load(str(folder / "checkpoint")).count()


def test_rows_that_all_went_leave_nothing_in_the_state_store(spark: SparkSession, tmp_path: Path) -> None:
    """Replaced blobs are deleted from RocksDB; only the last manifest and the last run of a shard remain."""
    running = query(spark, tmp_path)
    running.add(*({0: [Block(batch_of(("+I", f"row {i}"), start=i))]} for i in range(4)))
    running.run()
    assert stored(spark, tmp_path) == 2


def test_a_checkpoint_on_a_local_disk_needs_no_checksum_files(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes no .crc files, and still detects a changed byte in the state on disk."""
    running = query(spark, tmp_path)
    running.add(*({0: [Block(batch_of(*(("+I", f"row {i} {j}") for j in range(100))))]} for i in range(3)))
    running.run()
    assert not list((tmp_path / "checkpoint").rglob("*.crc"))
    log = max((tmp_path / "checkpoint" / "state").rglob("3.changelog"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    running.add({0: [Block(batch_of(("+I", "more")))]})
    with pytest.raises(StreamingQueryException, match="corrupt"):
        running.run()


def test_an_error_of_ours_is_found_in_what_spark_makes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """The message of an error in a worker is extracted unchanged from the query's exception."""
    running = query(spark, tmp_path, unmatched="fail")
    running.add({0: [Block(batch_of(("-D", "never there"), start=(12 << 16) + 3))]})
    with pytest.raises(StreamingQueryException) as failure:
        running.run()
    found = surfaced(failure.value)
    assert found is not None
    assert found.name == "UnmatchedRetractionError"
    assert found.message.startswith("sink, distinct: 1 retraction of one batch found no row")
    assert "offset 12 of partition 3" in found.message
    assert found.message.endswith("or set `unmatched: dead_letter` or `ignore`.")
    assert surfaced(ValueError("something else")) is None


def test_a_query_says_nothing_on_the_screen(tmp_path: Path) -> None:
    """A session that starts, runs a stateful query, fails in a task and stops prints only the program's own output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.quiet_program", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "failed as it should\n")
