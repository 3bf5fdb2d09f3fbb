"""The cases in `cases/`: their plans equal the files, and on random changes their results equal DuckDB's."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.tree import walk
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.plan.against_duckdb import Oracle, bag, is_what_duckdb_says, unmatched
from tests.plan.cases import Case, cases, planned
from tests.plan.changelogs import World, bare_updates
from tests.plan.traits import SinkOrder
from tests.plan.writers import Writers
from tests.seeds import batches, seeds

_STAYS = re.compile("→ (unmoved|same stage)")
_OF_TIME = re.compile(
    r"\b(MATCH_RECOGNIZE\b|(DESCRIPTOR|TUMBLE|HOP|SESSION|window|NOW)\(|ASOF\b|SYSTEM_TIME\b|ORDER BY PROCTIME\b)|"
    r"PROCTIME\(\) AS\b|\A(?!.*\bORDER BY\b).*\bLIMIT\b",
    re.DOTALL,
)
"""Constructs that DuckDB does not support, or for which its result may differ."""
_CLOCK = re.compile(r"\bclock (?!the clock)")
"""The text in an outline of an operator that uses a table's watermark."""
CASES = cases()
PLANNED = [case for case in CASES if not case.is_refused]
TIMED = [case for case in PLANNED if _CLOCK.search(case.expected)]
RUN = [case for case in PLANNED if not _OF_TIME.search(case.sql) and case not in TIMED]
"""Cases that DuckDB supports and that use no time; the other ones are tested by `tests.oracle`."""
KEYED = [case for case in RUN if case.settings["sink"].endswith(")") and _STAYS.search(case.expected)]
MOVING = [case for case in RUN if re.match("fixed_not_(by|through)_(?!null)", case.path.stem)]
SHARDS = 3
PARTS = 8
"""The number of graphs into which all cases are divided."""
BATCHES = batches(10)
FEW = 4
LONG = 25
"""The number of batches after which some row has moved to another shard."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)
def test_the_plan_is_the_one_in_the_file(case: Case) -> None:
    """A query is planned or refused exactly as its file says; `python -m tests.plan` writes the files."""
    assert case.outcome() == case.expected


@pytest.mark.parametrize("case", TIMED, ids=lambda case: case.path.stem)
def test_only_cases_that_go_by_a_watermark_are_kept_from_duckdb(case: Case) -> None:
    """A case that is excluded because its outline names a table after `clock` does use a watermark."""
    assert graph([planned(case)[1]]).timed_tables


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("case", RUN, ids=lambda case: case.path.stem)
def test_the_result_is_what_duckdb_says_after_every_batch(case: Case, seed: int) -> None:
    """The folded result and the traits of a plan agree with DuckDB's result after every batch."""
    is_what_duckdb_says(case, seed, BATCHES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_queries_that_share_what_they_can_have_each_its_own_result(part: int) -> None:
    """With many random cases in one graph, each result equals that of the case alone, after every batch."""
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
    """Return the cases that agree on the watermark of each table, as queries of one job must."""
    found: dict[str, object] = {}
    left = []
    for case in drawn:
        scans = [node for node in walk(planned(case)[1]) if isinstance(node, PhysicalScan)]
        marks = {node.source.table: node.source.watermark for node in scans}
        if all(found.setdefault(table, mark) == mark for table, mark in marks.items()):
            left.append(case)
    return left


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", KEYED, ids=lambda case: case.path.stem)
def test_each_key_is_written_by_one_of_several_shards(case: Case) -> None:
    """Shards that write their output independently produce DuckDB's result, and no key moves between shards."""
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
    """Without the shuffle, two changes of one key come from different shards."""
    job, sink = planned(case)
    assert sink.exchange
    writers = Writers(replace(sink, exchange=False), SHARDS, random.Random(0))

    def run() -> None:
        for number, (batch, _) in enumerate(World.of(job, bare_updates(sink), seed=3).batches(LONG)):
            writers.batch(batch, now=number)

    with pytest.raises(AssertionError, match="a key must have one writer"):
        run()
