"""The changes of the TPC-H example, and all its queries in one job over other changes."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.examples.jobs import EXAMPLES, InDuckDB, Inputs, bag, batches, example, unmatched
from tests.seeds import seeds
from tests.tpch.trade import Line, lines

SEED, EVENTS = 7, 50


def stored() -> str:
    """Return the content of the example's changes file."""
    return "".join(json.dumps(line) + "\n" for line in lines(SEED, EVENTS))


def shuffled(seed: int) -> list[Line]:
    """Return other changes; the initial rows are in random order, so that lines may precede their orders."""
    rng = random.Random(seed)
    changes = lines(seed, 60)
    first = next(number for number, line in enumerate(changes) if line["op"] != "+I")
    return [*rng.sample(changes[:first], first), *changes[first:]]


def test_the_stored_changes_are_those_of_the_generator() -> None:
    """The stored changes file equals the output of `python -m tests.examples`."""
    assert (EXAMPLES / "tpch" / "changes.jsonl").read_text() == stored()


@pytest.mark.parametrize("seed", [100 + seed for seed in seeds(2)])
def test_all_queries_of_one_job_give_what_duckdb_gives(seed: int) -> None:
    """After every batch the 22 results equal DuckDB's, even if an update and its old row are in different batches."""
    job = example("tpch")
    sinks = [plan(job, name) for name in job.sinks]
    engine = MemoryEngine(*sinks, unmatched=unmatched)
    folds = {sink.name: Fold(keyed=sink.mode == "upsert") for sink in sinks}
    inputs, duckdb = Inputs(job), InDuckDB(job)
    changes = [json.dumps(line) for line in shuffled(seed)]
    for number, batch in enumerate(batches(job, changes, random.Random(seed).choice((29, 61)))):
        inputs.apply(batch)
        duckdb.show(inputs.tables)
        given = engine.batch(batch, now=number)
        for sink in sinks:
            folds[sink.name].apply(given[sink.name])
            rows = bag(sink.value, pa.array(folds[sink.name].payloads, pa.binary()))
            assert rows == duckdb.rows(sink.name, sink.value), f"{sink.name}, batch {number}"
