"""Run `rowkind test` in this process on a job and tests that are written in the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from rowkind.service.cli import main

DEBTS = """
job: debts
tables:
  orders: {mode: upsert, primary_key: id, columns: {id: BIGINT, customer: STRING NOT NULL, amount: "DECIMAL(10,2)"}}
  payments: {mode: retract, primary_key: id, columns: {id: BIGINT, order_id: BIGINT, paid: "DECIMAL(10,2)"}}
  visits:
    mode: append
    columns: {page: STRING NOT NULL, at: TIMESTAMP NOT NULL, seconds: DOUBLE}
    watermark: {column: at, delay: 5s}
sinks:
  debts:
    mode: upsert
    key: id
    sql: |
      SELECT o.id, o.customer, o.amount - COALESCE(p.paid, 0) AS debt
      FROM orders o
      LEFT JOIN (SELECT order_id, SUM(paid) AS paid FROM payments GROUP BY order_id) p ON p.order_id = o.id
  payers: {mode: retract, sql: SELECT order_id FROM payments}
  shares: {mode: upsert, key: id, sql: "SELECT id, 100 / CAST(amount AS INT) AS share FROM orders"}
  minutes:
    mode: append
    sql: >-
      SELECT page, window_start AS minute, COUNT(*) AS visits, SUM(seconds) AS seconds
      FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY page, window_start, window_end
  known:
    mode: retract
    sql: >-
      SELECT v.page, o.customer FROM (SELECT *, CAST(page AS BIGINT) AS id, PROCTIME() AS now FROM visits) v
      LEFT JOIN orders FOR SYSTEM_TIME AS OF v.now AS o ON o.id = v.id
"""

ORDER = "orders: [{id: 1, customer: Ada, amount: 10.00}]"


@dataclass(frozen=True)
class Ran:
    """The output and the exit code of a run, and the file of tests after it."""

    code: int
    output: str
    errors: str
    file: Path

    @property
    def text(self) -> str:
        """The content of the file of tests."""
        return self.file.read_text()


def ran(folder: Path, tests: str, *options: str, job: str = DEBTS) -> Ran:
    """Write a job and its tests, and run them. `tests` has the entries of the list; paths in messages are short."""
    (folder / "job.yaml").write_text(job)
    file = folder / "job.tests.yaml"
    file.write_text(f"tests:\n{tests.strip(chr(10))}\n")
    done = CliRunner().invoke(main, ["test", str(folder / "job.yaml"), *options], prog_name="rowkind")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(done.exit_code, done.stdout.replace(f"{folder}/", ""), done.stderr.replace(f"{folder}/", ""), file)
