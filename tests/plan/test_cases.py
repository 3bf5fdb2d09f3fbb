"""Every case in `cases/`: the plan is the one written there, and run on random changes it gives what DuckDB gives."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Changes
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.fuzz.oracle import with_empty_lists
from tests.plan.cases import Case, cases, planned
from tests.plan.changelogs import World, bare_updates
from tests.plan.traits import SinkOrder, Traits
from tests.plan.writers import Writers
from tests.seeds import batches, seeds

_STAYS = re.compile("→ (unmoved|same stage)")
_OF_TIME = re.compile(
    r"\b((DESCRIPTOR|TUMBLE|HOP|SESSION|window|NOW)\(|ASOF\b|SYSTEM_TIME\b|ORDER BY PROCTIME\b)|"
    r"PROCTIME\(\) AS\b|\A(?!.*\bORDER BY\b).*\bLIMIT\b",
    re.DOTALL,
)
"""What DuckDB cannot read, or of which it may say something else."""
CASES = cases()
PLANNED = [case for case in CASES if not case.is_refused]
RUN = [case for case in PLANNED if not _OF_TIME.search(case.sql) and not graph([planned(case)[1]]).timed_tables]
"""Those that DuckDB can read and that know no time: for the others there are the tests of time in `tests.oracle`."""
KEYED = [case for case in RUN if case.settings["sink"].endswith(")") and _STAYS.search(case.expected)]
MOVING = [case for case in RUN if re.match("fixed_not_(by|through)_(?!null)", case.path.stem)]
SEEDS = seeds()
SHARDS = 3
PARTS = 8
"""How many graphs all cases make together."""
BATCHES = batches(10)
FEW = 4
LONG = 25
"""Batches after which a row has come out of another shard at last."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)
def test_the_plan_is_the_one_in_the_file(case: Case) -> None:
    """A query is planned, or refused, exactly as its file says; `python -m tests.plan` writes the files anew."""
    assert case.outcome() == case.expected


def is_what_duckdb_says(case: Case, seed: int, count: int) -> None:
    """Fold what the plan makes of so many random batches; it is what the SQL gives after each, and traits hold."""
    job, sink = planned(case)
    traits, order = Traits(), SinkOrder(sink)
    engine = MemoryEngine(sink, unmatched=unmatched, watch=traits.watch)
    fold = Fold(keyed=sink.mode == "upsert")
    world = World.of(job, bare_updates(sink), seed)
    oracle = Oracle(case, job.views)
    for number, (batch, tables) in enumerate(world.batches(count)):
        changes = engine.batch(batch, now=number)[sink.name]
        _check_form(sink, changes)
        traits.check()
        order.check(changes)
        fold.apply(changes)
        found = bag(sink.value, pa.array(fold.payloads, pa.binary()))
        _check_unique(sink, found)
        assert found == oracle.rows(sink.value, tables), f"batch {number}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", RUN, ids=lambda case: case.path.stem)
def test_the_result_is_what_duckdb_says_after_every_batch(case: Case, seed: int) -> None:
    """Folding a plan's changes gives what the SQL gives on the folded inputs, and traits hold, after every batch."""
    print(f"seed {seed}")
    is_what_duckdb_says(case, seed, BATCHES)


@pytest.mark.parametrize("part", range(PARTS))
def test_queries_that_share_what_they_can_have_each_its_own_result(part: int) -> None:
    """Many cases in one graph, drawn at random: after every batch each stands where it stands when it runs alone."""
    print(f"part {part}")
    drawn = _with_one_watermark(random.Random(7).sample(PLANNED, len(PLANNED))[part::PARTS])
    sinks = [replace(planned(case)[1], name=case.path.stem) for case in drawn]
    alone = {sink.name: MemoryEngine(sink, unmatched=unmatched) for sink in sinks}
    together = MemoryEngine(*sinks, unmatched=unmatched)
    assert len(together.graph.operators) < sum(len(each.graph.operators) for each in alone.values())
    folds = {sink.name: (Fold(keyed=sink.mode == "upsert"), Fold(keyed=sink.mode == "upsert")) for sink in sinks}
    for number, (batch, _) in enumerate(World.of(planned(drawn[0])[0], bare_updates(*sinks), part).batches(FEW)):
        found = together.batch(batch, now=number)
        for sink in sinks:
            shared, own = folds[sink.name]
            shared.apply(found[sink.name])
            own.apply(alone[sink.name].batch(batch, now=number)[sink.name])
            assert bag(sink.value, pa.array(shared.payloads, pa.binary())) == bag(
                sink.value, pa.array(own.payloads, pa.binary())
            ), f"{sink.name}, batch {number}"


def _with_one_watermark(drawn: list[Case]) -> list[Case]:
    """Those that agree on the watermark of each table, as the queries of one job have to."""
    found: dict[str, object] = {}
    left = []
    for case in drawn:
        scans = [node for node in walk(planned(case)[1]) if isinstance(node, PhysicalScan)]
        marks = {node.source.table: node.source.watermark for node in scans}
        if all(found.setdefault(table, mark) == mark for table, mark in marks.items()):
            left.append(case)
    return left


@pytest.mark.parametrize("case", KEYED, ids=lambda case: case.path.stem)
def test_each_key_is_written_by_one_of_several_shards(case: Case) -> None:
    """Shards that write what they emit, none knowing of the others, write what DuckDB says, and keys never move."""
    job, sink = planned(case)
    writers, order = Writers(sink, SHARDS, random.Random(0)), SinkOrder(sink)
    fold = Fold(keyed=sink.mode == "upsert")
    world = World.of(job, bare_updates(sink), seed=3)
    oracle = Oracle(case, job.views)
    for number, (batch, tables) in enumerate(world.batches(BATCHES)):
        changes = writers.batch(batch, now=number)
        order.check(changes)
        fold.apply(changes)
        assert bag(sink.value, pa.array(fold.payloads, pa.binary())) == oracle.rows(sink.value, tables), number


@pytest.mark.parametrize("case", MOVING, ids=lambda case: case.path.stem)
def test_a_key_that_is_shuffled_has_to_be(case: Case) -> None:
    """Without the shuffle, a row comes out of another shard than the one with the same key before it."""
    job, sink = planned(case)
    assert sink.exchange
    writers = Writers(replace(sink, exchange=False), SHARDS, random.Random(0))

    def run() -> None:
        for number, (batch, _) in enumerate(World.of(job, bare_updates(sink), seed=3).batches(LONG)):
            writers.batch(batch, now=number)

    with pytest.raises(AssertionError, match="a key has one writer for good"):
        run()


def unmatched(node: str, changes: Changes) -> None:
    """Well-formed changelogs take back nothing that is not there."""
    raise AssertionError(f"{node}: {len(changes)} unmatched of kinds {changes.kind.tolist()}")


def _check_form(sink: PhysicalSink, changes: Changes) -> None:
    """No change that the sink's mode does not have, and at most one per key."""
    kinds = set(changes.kind.tolist())
    assert kinds <= {"append": {0}, "retract": {0, 1, 2, 3}, "upsert": {0, 2, 3}}[sink.mode]
    if sink.mode == "upsert":
        assert len(set(changes.key.to_pylist())) == len(changes)


def _check_unique(sink: PhysicalSink, found: Counter[str]) -> None:
    """No two rows share what the plan says is a unique key."""
    rows = [json.loads(row) for row in found.elements()]
    for key in sink.input.traits.unique_keys:
        values = [json.dumps([row[column] for column in key]) for row in rows]
        assert len(set(values)) == len(values), f"{key} is not unique"


class Oracle:
    """The same SQL in DuckDB over finished tables."""

    def __init__(self, case: Case, views: Mapping[str, str]) -> None:
        self._connection = _database().cursor()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._views = {name: _in_duckdb(sql) for name, sql in views.items()}
        self._sql = _in_duckdb(case.sql)

    def rows(self, value: Record, tables: Mapping[str, pa.Table]) -> Counter[str]:
        """The rows of the result under the record `value`."""
        for name, table in tables.items():
            self._connection.register(name, table)
        for name, sql in self._views.items():
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")
        found = self._connection.sql(self._sql).to_arrow_table()
        columns = [found.column(number).combine_chunks() for number in range(found.num_columns)]
        typed = {field.name: column.cast(field.type.arrow) for field, column in zip(value.fields, columns, strict=True)}
        return bag(value, codec.encode(value, typed, found.num_rows))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all cases, each of which has a connection, and so tables and views, of its own."""
    return duckdb.connect(config={"threads": 1})


def _in_duckdb(sql: str) -> str:
    # SUM and AVG are what these are, as long as nothing overflows.
    plain = re.sub(r"\bTRY_(SUM|AVG)\b", r"\1", sql)
    return with_empty_lists(sqlglot.parse_one(plain, read="spark")).sql("duckdb")


def bag(value: Record, payloads: pa.BinaryArray) -> Counter[str]:
    """The rows that payloads hold, each as text."""
    # -0.0 and 0.0 are equal in SQL, so that either may stand for both.
    return Counter(json.dumps(row).replace("-0.0", "0.0") for row in decode(value, payloads))
