"""Several sinks in one graph: each has the result that it has alone, although they share operators."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate
from rowkind.service.plan.pipeline import plan, plan_query
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.plan.cases import FOLDER, TABLES, Case, cases
from tests.plan.changelogs import World, bare_updates
from tests.seeds import seeds

PLAIN = [case for case in cases() if not case.is_refused and set(case.settings) == {"sink"}]
BATCHES = 6


def job_of(folder: Path, sinks: dict[str, str], views: dict[str, str] | None = None) -> Job:
    """Return a job over the tables of the cases with these retract sinks."""
    tables = TABLES.read_text().partition("\nsinks:")[0]
    own = {"views": views or {}, "sinks": {name: {"mode": "retract", "sql": sql} for name, sql in sinks.items()}}
    file = folder / "job.yaml"
    file.write_text("\n".join([tables, *(f"{key}: {json.dumps(own[key], ensure_ascii=False)}" for key in own)]))
    return load(file)


def check(job: Job, together: Sequence[PhysicalSink], seed: int) -> None:
    """Run the plans in one graph, and each sink planned alone in its own graph, over the same changes."""
    alone = [plan(job, sink.name) for sink in together]
    world = World.of(job, bare_updates(*together, *alone), seed)
    engine, engines = MemoryEngine(*together), [MemoryEngine(sink) for sink in alone]
    folds = [(Fold(keyed=False), Fold(keyed=False)) for _ in together]
    for number, (batch, _) in enumerate(world.batches(BATCHES)):
        changes = engine.batch(batch, now=number)
        for sink, by_itself, own, (one, other) in zip(together, alone, engines, folds, strict=True):
            one.apply(changes[sink.name])
            other.apply(own.batch(batch, now=number)[sink.name])
            # A column may be known to be NOT NULL in only one of the two plans.
            assert rows(sink, one) == rows(by_itself, other), f"batch {number}, sink {sink.name}"


def rows(sink: PhysicalSink, fold: Fold) -> Counter[str]:
    """Return the rows of a result."""
    return Counter(json.dumps(row) for row in decode(sink.value, pa.array(fold.payloads, pa.binary())))


@pytest.mark.parametrize("seed", seeds(8))
def test_a_view_that_several_use_is_what_it_is_alone(seed: int, tmp_path: Path) -> None:
    """Three sinks over a case as a view, one under an alias, have the results that they have alone."""
    rng = random.Random(seed)
    # Exclude queries that are only allowed as complete queries.
    views = [case for case in PLAIN if not case.sql.lstrip().upper().startswith("WITH")]
    case = rng.choice([case for case in views if not case.path.stem.startswith("sort_")])
    fields = plan(job_of(tmp_path, {"alone": case.sql}), "alone").value.fields
    first = next(each.name for each in fields if each.type.orderable)
    sinks = {
        "all": "SELECT * FROM v",
        "few": f"SELECT w.{first} FROM v AS w WHERE w.{first} IS NOT NULL",
        "counts": f"SELECT v.{first}, COUNT(*) AS how_many FROM v GROUP BY v.{first}",
    }
    job = job_of(tmp_path, sinks, {"v": case.sql})
    check(job, plan_query(job, list(job.sinks)).sinks, seed)


def test_the_right_side_of_not_in_is_there_once(tmp_path: Path) -> None:
    """The facts about the right side of NOT IN are computed over the operators that the join reads."""
    case = Case.read(FOLDER / "not_in.txt")
    job = job_of(tmp_path, {"result": case.sql})
    operators = graph([plan(job, "result")]).operators
    assert sum(not isinstance(each.node, PhysicalAggregate) for each in operators) == 3, "two inputs and the join"


def test_a_view_without_state_takes_in_what_reads_it(tmp_path: Path) -> None:
    """Filters of the sinks are pushed through a view without state, as through a derived table."""
    view = {"v": "SELECT order_id, customer_id FROM orders WHERE customer_id > 1"}
    job = job_of(tmp_path, {"a": "SELECT * FROM v", "b": "SELECT order_id FROM v WHERE order_id > 3"}, view)
    planned = plan_query(job, ["a", "b"])
    assert planned.views == {}


def test_a_query_with_fewer_sinks_keeps_the_views_that_it_had(tmp_path: Path) -> None:
    """The plan of a sink does not change if another sink over the same view is removed."""
    view = {"v": "SELECT customer_id, COUNT(*) AS n, MAX(order_id) AS last FROM orders GROUP BY customer_id"}
    job = job_of(tmp_path, {"a": "SELECT customer_id FROM v WHERE n > 2", "b": "SELECT last FROM v"}, view)
    both = plan_query(job, ["a", "b"])
    assert both.views == {"v": frozenset({0, 1, 2})}
    assert plan_query(job, ["a"], both.views).sinks == both.sinks[:1]
    assert plan_query(job, ["a"]).sinks != both.sinks[:1]
