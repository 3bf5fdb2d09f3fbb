"""Plans of several operators in real queries, on RocksDB: fused stages, single shards, broadcasts, restarts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rowkind.avro import codec
from rowkind.avro.schema import Type
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.stages import shard_without_key
from rowkind.service.metrics import sample
from rowkind.service.physical import Expression, PhysicalJoin, PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.run.memory import Fold, MemoryEngine
from tests.plan.cases import FOLDER, Case
from tests.plan.changelogs import World
from tests.queries import COUNTED, CUSTOMERS, ROW_STATE, Shop, by, counted, everything, rows_of, scan, select
from tests.spark.plans import PlanQuery

pytestmark = pytest.mark.spark


def test_a_query_of_every_operator_is_what_sql_says_before_and_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One plan with fused operators, a broadcast, a union, a cross join and a global count, stopped in the middle."""
    shop = Shop("everything on RocksDB")
    query = PlanQuery(spark, tmp_path, everything())

    query.run(*(shop.batch(20) for _ in range(2)))
    assert query.rows == shop.result()

    query.run(*(shop.batch(20) for _ in range(1)))
    assert query.rows == shop.result()
    assert len(query.rows) > 2


def test_a_count_of_nothing_comes_out_once_and_then_counts(spark: SparkSession, tmp_path: Path) -> None:
    """A global count behind a join has its row from the first batch on, from one shard, whatever batches are empty."""
    named = Expression("\"name\" = 'ann'", Type.of("BOOLEAN"), ("name",), "name = 'ann'")
    ids = select(CUSTOMERS, "id", key=by(CUSTOMERS, "id"), nets=True)
    both = ids.output.concat(ids.output.rename({"id": "other"}))
    join = PhysicalJoin(
        "join_1",
        "inner",
        scan("c", CUSTOMERS, "append", replace(ids, predicate=named)),
        scan("d", CUSTOMERS, "append", replace(ids, output=both.select(["other"]), side=1)),
        ROW_STATE,
        ROW_STATE,
        both,
        None,
        select(both, nets=True),
    )
    count = counted("aggregate_1", join, select(COUNTED))
    query = PlanQuery(spark, tmp_path, PhysicalSink("n", "n", "retract", count, (), COUNTED, None, exchange=False))

    query.run({}, {"customers": people("bob", "eve")})
    assert query.rows == {(0,): 1}

    query.run({"customers": people("ann")})
    assert query.rows == {(1,): 1}
    assert [sum(len(block.changes) for block in query.outputs[batch]) for batch in range(3)] == [1, 0, 2]
    assert {name for name in query.counters if "state_rows" in name and "aggregate_1" in name} == {
        sample("rowkind_state_rows", operator="aggregate_1", shard=shard_without_key(2))
    }


def test_two_tasks_write_what_a_sink_key_fixes_unshuffled(spark: SparkSession, tmp_path: Path) -> None:
    """A top 3 over a join of inserted rows: both tasks write, each key by one of them only, and it is what SQL says."""
    case = Case.read(FOLDER / "fixed_through_equal_columns.txt")
    job = case.job(tmp_path)
    sink = plan(job, "result")
    assert not sink.exchange
    seed = 4
    print("seed", seed)
    small = [batch for batch, _ in World.of(job, {"sales": False, "signups": False}, seed).batches(30)]
    batches = [_as_one(small[start : start + 15]) for start in (0, 15)]
    query = PlanQuery(spark, tmp_path, sink)
    query.run(*batches)

    engine, fold = MemoryEngine(sink), Fold(keyed=True)
    for number, batch in enumerate(batches):
        fold.apply(engine.batch(batch, now=number))
    assert query.rows == rows_of(sink.value, fold.payloads)
    tasks: dict[bytes, set[int]] = defaultdict(set)
    for batch, blocks in query.outputs.items():
        for block, task in zip(blocks, query.tasks[batch], strict=True):
            for key in block.changes.key.to_pylist():
                tasks[key].add(task)
    assert {task for (task,) in tasks.values()} == {0, 1}


def _as_one(batches: Sequence[Mapping[str, Rows]]) -> dict[str, Rows]:
    tables = {table for batch in batches for table in batch}
    return {table: Rows.concat([batch[table] for batch in batches if table in batch]) for table in sorted(tables)}


def people(*names: str) -> Rows:
    """A new customer of each name."""
    columns = {"id": pa.array([ord(name[0]) for name in names], pa.int32()), "name": pa.array(names)}
    return Rows(np.zeros(len(names), np.int8), np.arange(len(names)), codec.encode(CUSTOMERS, columns))
