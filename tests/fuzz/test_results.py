"""Random queries over random changes give what DuckDB gives: what no case thought of."""

from __future__ import annotations

import random
import re
from collections import Counter

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from rowkind.avro import codec
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.physical import PhysicalScan, walk
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.run.memory import Fold, MemoryEngine
from tests.examples.jobs import bag
from tests.fuzz.sql_texts import Grammar
from tests.fuzz.test_refusals import with_query
from tests.plan.changelogs import World

OTHERWISE = re.compile(r"ROW_NUMBER|LIMIT|SUBSTRING|YEAR|CAST|LENGTH|GREATEST| [/%] ")
"""Where ties are broken by arrival, which DuckDB does not know, or where a function means something else there."""


@pytest.mark.parametrize("block", range(10))
def test_random_queries_give_what_duckdb_gives(block: int) -> None:
    """Forty queries of the grammar, a quarter of which can be planned and compared, after each of eight batches."""
    compared = 0
    for seed in range(40 * block, 40 * block + 40):
        sql = Grammar(random.Random(seed)).query()
        print(f"seed {seed}\n{sql}")
        compared += not OTHERWISE.search(sql) and _compare(sql, seed)
    assert compared


def _compare(sql: str, seed: int) -> bool:
    job = with_query(sql)
    try:
        sink = plan(job, "result")
    except PlanError:
        return False
    scans = [node for node in walk(sink) if isinstance(node, PhysicalScan)]
    bare = {
        each.source.table: all(not scan.traits.needs_before for scan in scans if scan.source.table == each.source.table)
        for each in scans
    }
    engine, fold = MemoryEngine(sink), Fold(keyed=False)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    translated = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
    for number, (batch, tables) in enumerate(World.of(job, bare, seed).batches(8)):
        for name, table in tables.items():
            connection.register(name, table)
        try:
            fold.apply(engine.batch(batch, now=number))
            result = connection.sql(translated).to_arrow_table()
        except (ExpressionError, duckdb.Error):
            return False
        columns = {
            field.name: column.cast(field.type.arrow).combine_chunks()
            for field, column in zip(sink.value.fields, result.columns, strict=True)
        }
        expected = bag(sink.value, codec.encode(sink.value, columns, result.num_rows))
        found = bag(sink.value, pa.array(fold.payloads, pa.binary()))
        assert _unsigned(found) == _unsigned(expected), f"batch {number}"
    return True


def _unsigned(rows: Counter[str]) -> Counter[str]:
    """-0.0 and 0.0 are equal in SQL, so that either may stand for both."""
    found: Counter[str] = Counter()
    for row, count in rows.items():
        found[row.replace("-0.0", "0.0")] += count
    return found
