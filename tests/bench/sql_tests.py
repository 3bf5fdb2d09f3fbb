"""Time of `rowkind test`: `python -m tests.bench.sql_tests`.

The tests are generated. Each gives two orders and a payment to a job that joins the orders with the sums of their
payments, so that a step of three rows has four batches: one with all rows, and one for each row. In tests with two
steps, the second step has two rows, and all rows together are a batch too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.command import measured
from tests.bench.compare import page
from tests.bench.compare.page import Table

_JOB = """
job: debts
tables:
  orders: {mode: upsert, primary_key: id, columns: {id: BIGINT, customer: STRING NOT NULL, amount: "DECIMAL(10,2)"}}
  payments: {mode: retract, primary_key: id, columns: {id: BIGINT, order_id: BIGINT, paid: "DECIMAL(10,2)"}}
sinks:
  debts:
    mode: upsert
    key: id
    sql: |
      SELECT o.id, o.customer, o.amount - COALESCE(p.paid, 0) AS debt
      FROM orders o
      LEFT JOIN (SELECT order_id, SUM(paid) AS paid FROM payments GROUP BY order_id) p ON p.order_id = o.id
"""
_STEPS = (
    """
      - given:
          orders: [{{id: {0}, customer: Ada, amount: 10.00}}, {{id: 1000000, customer: Max, amount: 5}}]
          payments: [{{id: 7, order_id: {0}, paid: 4.00}}]
        expect: [{{id: {0}, customer: Ada, debt: 6}}, {{id: 1000000, customer: Max, debt: 5}}]""",
    """
      - given:
          payments: [{{op: -D, id: 7}}, {{id: 8, order_id: {0}, paid: 1}}]
        expect: [{{id: {0}, customer: Ada, debt: 9}}, {{id: 1000000, customer: Max, debt: 5}}]""",
)
_BATCHES = {1: 4, 2: 8}
"""Batches of a test by its number of steps."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sql_tests", description="rowkind test, many tests.")
    parser.add_argument("--tests", type=int, nargs="+", default=[100, 1000], help="at least 2")
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    given, rows = parser.parse_args(), []
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="rowkind-tests-") as folder:
        for steps, batches in _BATCHES.items():
            for used in {1: cores[:1], len(cores): cores}.values():
                start = _run(Path(folder), 1, steps, used)
                for tests in given.tests:
                    wall, cpu = found = _run(Path(folder), tests, steps, used)
                    further = (tests - 1) * batches
                    each = [f"{1000 * (now - one) / further:,.1f}" for now, one in zip(found, start, strict=True)]
                    load = f"{os.getloadavg()[0]:.1f}"
                    rows.append([f"{tests:,}", str(steps), str(len(used)), f"{wall:,.1f}", f"{cpu:,.1f}", *each, load])
                    print(rows[-1], flush=True)
    head = ["tests", "steps of each", "cores", "seconds", "CPU s", "ms per batch", "CPU ms per batch", "load"]
    note = (
        "`rowkind test`, from start to exit. A run of one test is subtracted before the division by the batches of the "
        f"other tests. {page.machine()}."
    )
    table = Table("SQL tests run by `rowkind test`", head, rows, note)
    print(table.text())
    if given.write:
        page.write("sql tests", [table])
    return 0


def _run(folder: Path, tests: int, steps: int, cores: Sequence[int]) -> tuple[float, float]:
    """Return the wall and CPU seconds of one command on these cores."""
    (folder / "job.yaml").write_text(_JOB)
    lines = [f"  - name: test {number}\n    steps:{''.join(_STEPS[:steps]).format(number)}" for number in range(tests)]
    (folder / "job.tests.yaml").write_text("\n".join(["tests:", *lines, ""]))
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))]
    command = [*pinned, sys.executable, "-m", "rowkind", "test", str(folder / "job.yaml")]
    found = measured(command)
    return found.wall, found.cpu


if __name__ == "__main__":
    sys.exit(main())
