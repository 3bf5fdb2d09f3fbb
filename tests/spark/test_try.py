"""`rowkind try` with both engines, as its users run it: the same fold for a query with every operator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rowkind.avro.json_rows import decode
from rowkind.operators.changelog import SYMBOLS
from tests.queries import BLOCKED, CUSTOMERS, EXTRA, ORDERS, Shop

pytestmark = pytest.mark.spark

ROWKIND = str(Path(sys.executable).with_name("rowkind"))
TABLES = {record.name: record for record in (ORDERS, CUSTOMERS, BLOCKED, EXTRA)}

JOB = """
job: shop
tables:
  orders: {mode: retract, columns: {order_id: BIGINT NOT NULL, customer: INT, amount: "DECIMAL(10,2)"},
    primary_key: [order_id]}
  customers: {mode: upsert, columns: {id: INT NOT NULL, name: STRING}, primary_key: [id]}
  blocked: {mode: retract, columns: {who: INT}}
  extra: {mode: append, columns: {guest: INT, spent: "DECIMAL(20,2)"}}
  unused: {mode: append, columns: {a: INT}}
views:
  spent: >-
    SELECT customer, COUNT(*) AS orders, SUM(amount) AS total, MAX(amount) AS largest,
      COUNT(DISTINCT customer, amount) AS amounts
    FROM orders GROUP BY customer
  named: SELECT s.customer, s.total, s.amounts, c.name FROM spent s LEFT JOIN customers c ON s.customer = c.id
  free: >-
    SELECT * FROM named n WHERE customer NOT IN (SELECT who FROM blocked)
      AND NOT EXISTS (SELECT 1 FROM extra e WHERE e.guest = n.customer AND e.spent > n.total)
  everybody: SELECT total, name FROM free UNION ALL SELECT spent, 'guest' FROM extra
  ranked: >-
    SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY total DESC) AS place FROM everybody
sinks:
  best:
    mode: retract
    sql: >-
      SELECT * FROM (SELECT * FROM ranked WHERE place <= 2)
      CROSS JOIN (SELECT COUNT(*) AS n FROM unused u JOIN unused v ON u.a = v.a)
      CROSS JOIN (SELECT MAX(a) AS m FROM unused)
"""


def changes(shop: Shop) -> list[str]:
    """The lines of a batch."""
    lines = []
    for table, rows in shop.batch(24).items():
        for kind, row in zip(rows.kind.tolist(), decode(TABLES[table], rows.payload), strict=True):
            lines.append(json.dumps({"table": table, "op": SYMBOLS[kind], "row": row}, default=str))
    return lines


def fold(folder: Path, engine: str) -> list[str]:
    """What `rowkind try --fold` prints of the job and the changes in a folder."""
    command = [ROWKIND, "try", "job.yaml", "--changes", "changes.jsonl", "--batch-rows", "24", "--fold"]
    done = subprocess.run(
        [*command, "--engine", engine], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_both_engines_give_the_same_fold_of_a_query_of_every_operator(tmp_path: Path) -> None:
    """Over two batches of random changes, and with what is there before any: the row of a global aggregate."""
    shop = Shop("both engines")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "changes.jsonl").write_text("\n".join(changes(shop) + changes(shop)))

    expected = fold(tmp_path, "memory")
    assert len(expected) > 2
    assert all('"n": 0, "m": null}' in row for row in expected)
    assert fold(tmp_path, "spark") == expected
