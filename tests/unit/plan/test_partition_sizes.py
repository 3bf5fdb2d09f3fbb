"""The number of rows in a partition: if it is provably small, a rank numbers them, and otherwise an Over."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.job.load import load
from rowkind.service.physical.operators import PhysicalOver, PhysicalRank
from rowkind.service.plan.pipeline import plan

JOB = """
job: sizes
tables:
  stock:
    mode: retract
    primary_key: [shop, item, fresh]
    columns: {{shop: INT NOT NULL, item: STRING NOT NULL, fresh: BOOLEAN, count: INT, status: STRING}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""
NUMBERED = "SELECT item, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY count, item) AS n FROM {}"
SMALL = [
    ("shop, item", "stock"),
    ("shop, item, fresh", "stock"),
    ("shop", "stock WHERE item IN ('a', 'b')"),
    ("shop, item", "stock WHERE status = 'x'"),
    ("shop", "(SELECT shop, status = 'x' AS item, SUM(count) AS count FROM stock GROUP BY shop, status = 'x')"),
    ("shop", "(SELECT * FROM stock QUALIFY ROW_NUMBER() OVER (PARTITION BY shop ORDER BY count, item, fresh) <= 10)"),
    ("fresh", "(SELECT * FROM stock ORDER BY count, item, fresh, shop LIMIT 5)"),
    ("count", "(SELECT 'all' AS item, COUNT(*) AS count FROM stock)"),
]
LARGE = [
    ("shop", "stock"),
    ("item", "stock WHERE shop IN (1, count)"),
    ("shop", "stock WHERE status = 'x'"),
    ("shop", "(SELECT * FROM stock QUALIFY RANK() OVER (PARTITION BY shop ORDER BY count) <= 10)"),
    ("shop", "(SELECT * FROM stock QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY count, shop, fresh) <= 10)"),
    ("shop", "(SELECT * FROM stock UNION ALL SELECT * FROM stock)"),
]


@pytest.mark.parametrize(("partition", "rows"), SMALL)
def test_a_partition_of_few_rows_is_numbered_to_its_end(partition: str, rows: str, tmp_path: Path) -> None:
    """A partition is small by a unique key whose other columns have few values, or by a rank over its input."""
    assert _numbers(NUMBERED.format(partition, rows), tmp_path) is PhysicalRank


@pytest.mark.parametrize(("partition", "rows"), LARGE)
def test_a_partition_of_any_size_is_no_rank_without_the_hint(partition: str, rows: str, tmp_path: Path) -> None:
    """If no bound on the partition is known, an Over numbers it, and a rank only with the hint UNBOUNDED_RANK."""
    sql = NUMBERED.format(partition, rows)
    assert _numbers(sql, tmp_path) is PhysicalOver
    assert _numbers(sql.replace("SELECT item", "SELECT /*+ UNBOUNDED_RANK */ item", 1), tmp_path) is PhysicalRank


def _numbers(sql: str, folder: Path) -> type:
    """Return the type of the last operator, which numbers the rows."""
    (folder / "job.yaml").write_text(JOB.format(sql=sql))
    return type(plan(load(folder / "job.yaml"), "result").input)
