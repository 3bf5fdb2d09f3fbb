"""Plans of several operators in real queries on RocksDB: levels, single shards, broadcasts, several sinks."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rowkind.avro import codec
from rowkind.avro.schema import Type
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.metrics import sample
from rowkind.service.execute.route import shard_without_key
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.plan import pipeline
from rowkind.service.plan.passes.reuse_join_state import reuse_join_state
from rowkind.service.plan.phases import PHASES
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from rowkind.service.query.streaming import opens
from rowkind.service.query.trial import read
from rowkind.service.query.trial_on_spark import changes_of
from tests.clocked import job_of
from tests.plan.cases import FOLDER, Case
from tests.plan.changelogs import World
from tests.queries import (
    COUNTED,
    CUSTOMERS,
    NAMED,
    ROW_STATE,
    Shop,
    by,
    counted,
    everything,
    named,
    rows_of,
    scan,
    select,
)
from tests.spark.plans import PlanQuery

pytestmark = pytest.mark.spark


def test_a_query_of_every_operator_is_what_sql_says_before_and_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Fused operators on several levels, a broadcast, a union, a cross join and a global count survive a restart."""
    shop = Shop("everything on RocksDB")
    query = PlanQuery(spark, tmp_path, [everything()])

    query.run(*(shop.batch(20) for _ in range(2)))
    assert query.rows() == shop.result()

    query.run(*(shop.batch(20) for _ in range(1)))
    assert query.rows() == shop.result()
    assert len(query.rows()) > 2


def test_two_sinks_of_one_query_share_a_join_and_stand_at_the_same_place(spark: SparkSession, tmp_path: Path) -> None:
    """After every batch each sink has the rows that SQL and the memory engine give, even after a restart."""
    shop, sinks = Shop("two sinks"), [named(), everything()]
    query = PlanQuery(spark, tmp_path, sinks)
    engine, folds = MemoryEngine(*sinks), [Fold(keyed=False) for _ in sinks]
    assert len(query.graph.operators) == len(MemoryEngine(everything()).graph.operators)
    expected: list[list[Counter[tuple[Any, ...]]]] = []
    for some in (2, 1):
        batches = []
        for _ in range(some):
            batches.append(shop.batch(20))
            changes = engine.batch(batches[-1], now=len(expected))
            for sink, fold in zip(sinks, folds, strict=True):
                fold.apply(changes[sink.name])
            expected.append([shop.result(NAMED), shop.result()])
            assert [rows_of(sink.value, each.payloads) for sink, each in zip(sinks, folds, strict=True)] == expected[-1]
        query.run(*batches)
    assert [[query.rows(number, done + 1) for number in range(2)] for done in range(3)] == expected
    assert all(len(rows) > 2 for rows in expected[-1])
    joins = {name for name in query.counters if "rows_in" in name and "join_1" in name}
    assert joins
    assert all('sink="named"' in name for name in joins), "it counts for the first of them"


def test_a_query_goes_on_where_its_checkpoint_has_more_stages(spark: SparkSession, tmp_path: Path) -> None:
    """After the deepest sink is removed, the others continue with their state, through all stages of the checkpoint."""
    shop, sinks = Shop("a sink is gone"), [named(), everything()]
    both = PlanQuery(spark, tmp_path, sinks)
    both.run(shop.batch(20))
    assert both.rows() == shop.result(NAMED)

    rest = replace(both, sinks=sinks[:1], levels=both.graph.levels)
    assert rest.graph.levels == rest.levels > max(each.level for each in rest.graph.operators)
    rest.outputs = {0: []}
    rest.run(shop.batch(20), shop.batch(20))
    fold = Fold(keyed=False)
    for of, number in ((both, 0), (rest, 1), (rest, 2)):
        fold.apply(changes_of(sinks[0], of.outputs[number], of.graph.place("named")))
    assert rows_of(sinks[0].value, fold.payloads) == shop.result(NAMED)


def test_the_levels_at_which_somebody_begins_without_rows() -> None:
    """A global count starts without rows, in the shard of the empty key."""
    assert opens(graph([everything()]), 2) == ((shard_without_key(2), 2),)
    assert opens(graph([named()]), 2) == ()


def test_a_count_of_nothing_comes_out_once_and_then_counts(spark: SparkSession, tmp_path: Path) -> None:
    """A global count over a join has its row from the first batch on, from one shard, even if batches are empty."""
    named = Expression("\"name\" = 'ann'", Type.of("BOOLEAN"), ("name",), "name = 'ann'")
    ids = select(CUSTOMERS, "id", key=by(CUSTOMERS, "id"), nets=True)
    both = ids.output.concat(ids.output.rename({"id": "other"}))
    join = PhysicalJoin(
        "join_1",
        scan("c", CUSTOMERS, "append", replace(ids, predicate=named)),
        scan("d", CUSTOMERS, "append", replace(ids, output=both.select(["other"]), side=1)),
        "inner",
        ROW_STATE,
        ROW_STATE,
        both,
        None,
        calc=select(both, nets=True),
    )
    count = counted("aggregate_1", join, select(COUNTED))
    query = PlanQuery(spark, tmp_path, [PhysicalSink("n", "n", "retract", count, (), COUNTED, None, exchange=False)])

    query.run({}, {"customers": people("bob", "eve")})
    assert query.rows() == {(0,): 1}

    query.run({"customers": people("ann")})
    assert query.rows() == {(1,): 1}
    assert [sum(len(block.changes) for block in query.outputs[batch]) for batch in range(3)] == [1, 0, 2]
    assert {name for name in query.counters if "state_rows" in name and "aggregate_1" in name} == {
        sample("rowkind_state_rows", sink="n", operator="aggregate_1", shard=shard_without_key(2))
    }


def test_two_tasks_write_what_a_sink_key_fixes_unshuffled(spark: SparkSession, tmp_path: Path) -> None:
    """Both tasks write a top 3 over a join, each key is written by only one of them, and the result is right."""
    case = Case.read(FOLDER / "fixed_through_equal_columns.txt")
    job = case.job(tmp_path)
    sink = plan(job, "result")
    assert not sink.exchange
    seed = 4
    print("seed", seed)
    small = [batch for batch, _ in World.of(job, {"sales": False, "signups": False}, seed).batches(30)]
    batches = [_as_one(small[start : start + 15]) for start in (0, 15)]
    query = PlanQuery(spark, tmp_path, [sink])
    query.run(*batches)

    engine, fold = MemoryEngine(sink), Fold(keyed=True)
    for number, batch in enumerate(batches):
        fold.apply(engine.batch(batch, now=number)[sink.name])
    assert query.rows() == rows_of(sink.value, fold.payloads)
    tasks: dict[bytes, set[int]] = defaultdict(set)
    for batch, blocks in query.outputs.items():
        for block, task in zip(blocks, query.tasks[batch], strict=True):
            for key in block.changes.key.to_pylist():
                tasks[key].add(task)
    assert {task for (task,) in tasks.values()} == {0, 1}


def test_rows_of_one_key_are_in_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Joins and ranks with SKEW hints give the same rows in two tasks as without the hint."""
    hinted, plain = [], []
    for name in ("skew_left", "skew_anti", "skew_rank"):
        case = Case.read(FOLDER / f"{name}.txt")
        job = case.job(tmp_path)
        (tmp_path / "plain").mkdir(exist_ok=True)
        without = replace(case, sql=re.sub(r"/\*\+.*?\*/ ", "", case.sql)).job(tmp_path / "plain")
        hinted.append(replace(plan(job, "result"), name=name))
        plain.append(replace(plan(without, "result"), name=name))
    seed = 9
    print("seed", seed)
    tables = dict.fromkeys(MemoryEngine(*plain).tables, False)
    small = [batch for batch, _ in World.of(job, tables, seed).batches(60)]
    batches = [_as_one(small[start : start + 30]) for start in (0, 30)]
    query = PlanQuery(spark, tmp_path, hinted)
    query.run(*batches)

    engine, folds = MemoryEngine(*plain), [Fold(keyed=False) for _ in plain]
    for number, batch in enumerate(batches):
        changes = engine.batch(batch, now=number)
        for sink, fold in zip(plain, folds, strict=True):
            fold.apply(changes[sink.name])
    for number, (sink, fold) in enumerate(zip(plain, folds, strict=True)):
        assert query.rows(number) == rows_of(sink.value, fold.payloads)
        assert fold.payloads, sink.name


def test_what_joins_by_one_key_do_not_keep_is_there_after_a_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joins read each other's state from RocksDB, and give the same result as joins that keep all their rows."""
    job = Case.read(FOLDER / "chain_one_key.txt").job(tmp_path)
    sink = plan(job, "result")
    assert [sorted(each.reads) for each in graph([sink]).operators][-1] == [
        f"{side}.{below}" for side in ("left", "right") for below in ("left", "right")
    ]
    phases = (replace(each, passes=tuple(one for one in each.passes if one is not reuse_join_state)) for each in PHASES)
    monkeypatch.setattr(pipeline, "PHASES", tuple(phases))
    kept = plan(job, "result")
    assert not any(each.reads for each in graph([kept]).operators)
    seed = 3
    print("seed", seed)
    engine, fold = MemoryEngine(kept), Fold(keyed=False)
    small = [batch for batch, _ in World.of(job, dict.fromkeys(engine.tables, False), seed).batches(90)]
    batches = [_as_one(small[start : start + 30]) for start in (0, 30, 60)]
    query = PlanQuery(spark, tmp_path, [sink])
    query.run(*batches[:2])
    query.run(batches[2])

    for number, batch in enumerate(batches):
        fold.apply(engine.batch(batch, now=number)[kept.name])
        assert query.rows(batches=number + 1) == rows_of(kept.value, fold.payloads)
    assert len(fold.payloads) > 10


def test_two_tasks_read_the_changes_of_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """One task reads inserts and updates of an exact table, the other reads deletes, and no row is left over."""
    job = job_of(tmp_path, TAKEN_APART)
    rows = [{"id": number, "at": f"2026-01-01T00:0{number}:00Z", "xs": [number, 7]} for number in range(6)]
    old, new = rows[:3], [{**row, "xs": [8]} for row in rows[:3]]
    updated = [("-U", row) for row in old], [("+U", row) for row in new]
    comes = [*(change for pair in zip(*updated, strict=True) for change in pair), *(("+I", row) for row in rows[3:])]
    changes = [*(("+I", row) for row in old), *comes, *(("-D", row) for row in (*new, *rows[3:]))]
    lines = [json.dumps({"table": "t", "op": op, "row": row}) for op, row in changes]
    first, second = read(job, lines[:3], "changes", 3), read(job, ["\n"] * 3 + lines[3:], "changes", len(lines))
    query = PlanQuery(spark, tmp_path, [plan(job, "counted"), plan(job, "elements")], readers=2)
    query.run(*first)
    assert query.rows(1).total() == 6
    query.run(*second)

    assert query.rows(0) == Counter({(0,): 1})
    assert not query.rows(1)
    told = [name for name in query.counters if name.startswith("rowkind_broken_promises_total")]
    assert not told, told


TAKEN_APART = """
job: taken-apart
tables:
  t:
    mode: retract
    primary_key: [id]
    exact: true
    columns: {id: INT NOT NULL, at: TIMESTAMP NOT NULL, xs: ARRAY<INT> NOT NULL}
views:
  w: SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE))
sinks:
  counted:
    mode: retract
    sql: SELECT COUNT(*) AS n FROM w WHERE EXISTS (SELECT id FROM t AS o WHERE o.id = w.id)
  elements:
    mode: upsert
    key: [id, p]
    sql: SELECT id, p, x FROM t LATERAL VIEW POSEXPLODE(xs) e AS p, x
"""


def _as_one(batches: Sequence[Mapping[str, Rows]]) -> dict[str, Rows]:
    tables = {table for batch in batches for table in batch}
    return {table: Rows.concat([batch[table] for batch in batches if table in batch]) for table in sorted(tables)}


def people(*names: str) -> Rows:
    """Return a new customer for each name."""
    columns = {"id": pa.array([ord(name[0]) for name in names], pa.int32()), "name": pa.array(names)}
    return Rows(np.zeros(len(names), np.int8), np.arange(len(names)), codec.encode(CUSTOMERS, columns))
