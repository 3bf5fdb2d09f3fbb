"""Columns that a producer adds to the registry's schema: a query that does not read them is unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.job.load import loaded
from rowkind.service.job.model import Job
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan_query

BEFORE = {"id": "BIGINT NOT NULL", "k": "STRING", "v": "INT", "ts": "TIMESTAMP NOT NULL", "s": "STRUCT<extra: INT>"}
TABLES = {
    "append": "{mode: append}",
    "retract": "{mode: retract}",
    "exact": "{mode: retract, exact: true}",
    "keyed": "{mode: retract, primary_key: id}",
    "upsert": "{mode: upsert, primary_key: id}",
}
QUERIES = (
    "SELECT id, k FROM t",
    "SELECT k, COUNT(*) AS c, SUM(v) AS s FROM t GROUP BY k",
    "SELECT k, MAX(v) AS m FROM t GROUP BY k",
    "SELECT COUNT(*) AS c FROM t",
    "SELECT a.k, a.id, a.v, a.ts, b.v AS w FROM t a JOIN t b ON a.k = b.k",
    "SELECT id, k, v, ts, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM t) WHERE n <= 2",
    "SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t) WHERE n = 1",
    "SELECT id, k FROM t WHERE k IN (SELECT k FROM t WHERE v > 3)",
    "SELECT id, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM t",
    "SELECT DISTINCT k FROM t",
)


def job(folder: Path, table: str, sql: str) -> Job:
    """Return a job whose table has the columns in the registry."""
    text = (
        f"job: j\nregistry: {{folder: {folder}}}\ntables:\n  t: {table}\n"
        f"sinks:\n  out:\n    topic: o\n    mode: retract\n    sql: |\n      {sql}\n"
    )
    return loaded(text, folder / "job.yaml")


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("table", TABLES)
def test_a_column_that_nobody_reads_changes_no_fact(table: str, sql: str, tmp_path: Path) -> None:
    """A checkpoint remains valid when an unread nullable column is added, and again when a second one is."""
    registry = FolderRegistry(tmp_path)
    registry.register("t-value", Record.of(BEFORE, name="Row"))
    (first,) = plan_query(job(tmp_path, TABLES[table], sql), ["out"]).sinks
    facts = fingerprint(first)
    for number, added in enumerate(({"extra": "STRING"}, {"more": "DATE"})):
        columns = {**BEFORE, **added} if not number else {"more": "DATE", **BEFORE, "extra": "STRING"}
        registry.register("t-value", Record.of(columns, name="Row"))
        (later,) = plan_query(job(tmp_path, TABLES[table], sql), ["out"], facts={"out": facts}).sinks
        assert differences(facts, fingerprint(later)) == []
        facts = fingerprint(later)


def test_a_column_that_is_read_is_a_change(tmp_path: Path) -> None:
    """A query that reads the new column has another fingerprint."""
    registry, table = FolderRegistry(tmp_path), TABLES["retract"]
    registry.register("t-value", Record.of(BEFORE, name="Row"))
    sql = "SELECT a.id, b.v FROM t a JOIN t b ON a.k = b.k"
    (first,) = plan_query(job(tmp_path, table, sql), ["out"]).sinks
    registry.register("t-value", Record.of({**BEFORE, "extra": "STRING"}, name="Row"))
    changed = job(tmp_path, table, sql.replace("a.id", "a.id, a.extra"))
    (later,) = plan_query(changed, ["out"], facts={"out": fingerprint(first)}).sinks
    assert differences(fingerprint(first), fingerprint(later))
