"""The statements of `rowkind verify` have the results of the streaming engine."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rowkind.avro.json_rows import check_row, encode
from rowkind.service.client.consume import TopicFold
from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan, source_table
from rowkind.service.query import trial
from rowkind.service.query.memory import Fold
from rowkind.service.verify.errors import NotComparedError
from tests.fuzz.batch_statement import computed, rows
from tests.fuzz.case import SINK, Case, random_case
from tests.fuzz.changelogs import random_changes, rows_of
from tests.fuzz.running import in_memory
from tests.fuzz.test_queries import QUERIES, TABLES
from tests.seeds import seeds

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/changes.jsonl"))
NOT_COMPARED = {
    ("dips", "dips"): "MATCH_RECOGNIZE",
    ("nexmark", "q12"): "PROCTIME() is the time at which a row was processed",
    ("reviews", "typical_prices"): "the job's own aggregate function median_of",
    ("reviews", "tags"): "the job's own aggregate function median_of",
}


@pytest.mark.parametrize("changes", EXAMPLES, ids=[each.parent.name for each in EXAMPLES])
def test_an_example_has_the_same_rows(changes: Path) -> None:
    """Over an example's changes, each sink has the same rows in DuckDB, or a reason why it is not compared."""
    job = load(changes.parent / "job.yaml")
    batches = trial.read(job, changes.read_text().splitlines(), "changes", 7)
    tables = {}
    for name in job.tables:
        of = source_table(job, name)
        fold = TopicFold(of)
        for batch in batches:
            if name in batch:
                fold.add(batch[name])
        tables[name] = of.declared, fold.payload
    for name in job.sinks:
        sink, whole = plan(job, name), list(batches)
        trial.end(sink, whole)
        if (reason := NOT_COMPARED.get((changes.parent.name, name))) is not None:
            with pytest.raises(NotComparedError) as refused:
                computed(job, name, tables)
            assert refused.value.reason == reason
            continue
        expected, _ = computed(job, name, tables)
        found = rows(sink.value, trial.folded(job, sink, whole, trial.in_memory(lambda _: None)))
        assert found == expected, name


def compared(case: Case) -> bool:
    """Compare the results of a case; return False if the case is not for this test."""
    try:
        job, sink = case.job, plan(case.job, SINK)
    except PlanError:
        return False
    if case.clock or case.windows or case.ttl:
        return False
    live = rows_of(case.tables)
    for number, each in enumerate(case.changes):
        live[each["table"]].apply(each["op"], each["row"], number)
    tables = {}
    for name, own in live.items():
        record = source_table(job, name).declared
        tables[name] = record, encode(record, [check_row(record, row) for _, row in own.live])
    try:
        expected, sure = computed(job, SINK, tables)
    except (NotComparedError, duckdb.Error):
        return False
    fold = Fold(keyed=sink.mode == "upsert")
    for changes in in_memory(job, sink, case.batches(job), case):
        fold.apply(changes)
    found = rows(sink.value, pa.array(fold.payloads, pa.binary()))
    assert not sure - found, f"{case.sql}: {sure - found} is missing"
    assert found == expected or sure != expected, f"{case.sql}: {found - expected} is not expected"
    return True


def test_queries_have_the_same_rows() -> None:
    """Nearly all queries are compared, and have the same rows as the streaming engine."""
    done = 0
    for sql in QUERIES:
        changes = random_changes(random.Random(sql), TABLES, 40)
        tables = {each.name: each.entry for each in TABLES}
        done += compared(Case(sql, sql, tables, {"mode": "retract"}, 9, changes))
    assert done >= len(QUERIES) - 1


def test_random_jobs_have_the_same_rows() -> None:
    """Random jobs over random changes have the same rows, except for rows that a tie decides."""
    done = sum(compared(random_case(seed)) for seed in seeds(40))
    assert done > 0
