"""`rowkind try` with both engines, run as users run it: the same fold for a query with every operator."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    """Return the lines of a batch."""
    lines = []
    for table, rows in shop.batch(24).items():
        for kind, row in zip(rows.kind.tolist(), decode(TABLES[table], rows.payload), strict=True):
            lines.append(json.dumps({"table": table, "op": SYMBOLS[kind], "row": row}, default=str))
    return lines


def tried(folder: Path, engine: str, *options: str) -> list[str]:
    """Return the lines that `rowkind try` prints for the job and the changes in a folder."""
    command = [ROWKIND, "try", "job.yaml", "--changes", "changes.jsonl", "--batch-rows", "24", "--engine", engine]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_both_engines_give_the_same_fold_of_a_query_of_every_operator(tmp_path: Path) -> None:
    """The folds agree over two random batches, and include a global aggregate's row, which exists before any change."""
    shop = Shop("both engines")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "changes.jsonl").write_text("\n".join(changes(shop) + changes(shop)))

    expected = tried(tmp_path, "memory", "--fold")
    assert len(expected) > 2
    assert all('"n": 0, "m": null}' in row for row in expected)
    assert tried(tmp_path, "spark", "--fold") == expected


TIMED = """
job: timed
ttl: 10s
on_expire: retract
tables:
  a: {mode: append, on_expire: forget, columns: {id: BIGINT NOT NULL, k: BIGINT, ts: TIMESTAMP NOT NULL},
    watermark: {column: ts, delay: 4s}}
  b: {mode: upsert, columns: {id: BIGINT NOT NULL, v: BIGINT, ts: TIMESTAMP NOT NULL}, primary_key: [id]}
sinks:
  sorted: {mode: append, sql: "SELECT id, k FROM a ORDER BY ts, k DESC"}
  alive: {mode: retract, key: [id], sql: "SELECT x.id, x.v, y.v AS w FROM b AS x LEFT JOIN b AS y ON x.v = y.id"}
  recent: {mode: retract, key: [id], sql: "SELECT id, v FROM b WHERE ts > NOW() - INTERVAL '5' SECOND"}
"""


def timed_changes(table: str) -> list[str]:
    """Return changes of a table, out of order, with the clock advancing between them."""
    dice = random.Random("timed")
    lines: list[dict[str, Any]] = []
    for second in range(0, 60, 3):
        lines.append({"clock": f"2026-01-01T00:00:{second:02}Z"})
        for number in range(dice.choice((0, 2, 5))):
            ts = f"2026-01-01T00:00:{max(0, second - dice.randint(0, 3)):02}Z"
            if table == "a":
                row = {"id": 10 * second + number, "k": dice.randint(1, 3), "ts": ts}
                lines.append({"table": "a", "op": "+I", "row": row})
            else:
                row = {"id": dice.randint(1, 5), "v": dice.randint(1, 5), "ts": ts}
                lines.append({"table": "b", "op": "+U", "row": row})
    return list(map(json.dumps, lines))


@pytest.mark.parametrize("sink", ["sorted", "alive", "recent"])
def test_both_engines_print_the_same_under_a_clock(tmp_path: Path, sink: str) -> None:
    """Every batch agrees: rows released in order by the watermark, rows that expire, and rows that NOW() drops."""
    (tmp_path / "job.yaml").write_text(TIMED)
    (tmp_path / "changes.jsonl").write_text("\n".join(timed_changes("a" if sink == "sorted" else "b")))
    options = ["--sink", sink, "--open"]
    expected, found = (tried(tmp_path, engine, *options) for engine in ("memory", "spark"))
    assert len(expected) > 10
    assert found == expected if sink == "sorted" else sorted(found) == sorted(expected)
