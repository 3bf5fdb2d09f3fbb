"""Seconds from the first command to the first result, of Rowkind, Flink SQL and Pathway, without installation.

Usage: `python -m tests.bench.first_steps --flink FLINK_HOME --pathway PYTHON`.

FLINK_HOME is an unpacked distribution of Flink. The folder `pyflink` of the package `apache-flink` will do if its `lib`
also has the jars flink-sql-gateway and flink-sql-gateway-api of the same version. PYTHON has the package `pathway`.
Systems that are not named are left out. Each way to a result runs in turn, `--runs` times, on generated data. `--only`
takes a part of a name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.run.process import ROOT
from tests.terminal import Terminal

FLINK = """
SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE orders (id BIGINT, customer INT, amount INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
  'fields.customer.min' = '1', 'fields.customer.max' = '5', 'fields.amount.min' = '1', 'fields.amount.max' = '50');
SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY customer;
"""
PATHWAY = """
import pathway as pw
class Orders(pw.Schema):
    id: int
    customer: int
    amount: int
made = {"id": lambda i: i, "customer": lambda i: i % 5, "amount": lambda i: i % 50}
orders = pw.demo.generate_custom_stream(made, schema=Orders, nb_rows=None, input_rate=1000)
totals = orders.groupby(pw.this.customer).reduce(
    pw.this.customer, orders=pw.reducers.count(), amount=pw.reducers.sum(pw.this.amount)
)
pw.io.subscribe(totals, lambda key, row, time, is_addition: print("result", row, flush=True))
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
"""


@dataclass(frozen=True)
class Way:
    """A way to a first result. `command` is the command, and `seen` matches the first line of a result."""

    name: str
    command: tuple[str, ...]
    seen: str
    afterwards: tuple[str, ...] = ()

    def seconds(self) -> float:
        """Run the command until it shows a result, and return after how many seconds it did."""
        began = time.monotonic()
        with Terminal(*self.command) as shown:
            shown.until(self.seen)
            seconds = time.monotonic() - began
            shown.press_ctrl_c()
            with suppress(AssertionError):
                shown.ended()
        if self.afterwards:
            with Terminal(*self.afterwards) as shown:
                shown.ended()
        return seconds


def ways(folder: Path, flink: Path | None, pathway: Path | None) -> Iterator[Way]:
    """Yield all ways, with their files in the folder."""
    rowkind = (sys.executable, "-m", "rowkind")
    school = ROOT / "examples" / "school"
    tried = ("try", str(school / "job.yaml"), "--changes", str(school / "changes.jsonl"), "--sink", "podium")
    yield Way("Rowkind, demo", (*rowkind, "demo"), r"rows from \+I")
    yield Way("Rowkind, try", (*rowkind, *tried), r"\+I +1")
    if flink:
        script = folder / "first.sql"
        script.write_text(FLINK)
        start = f"{flink}/bin/start-cluster.sh && {flink}/bin/sql-client.sh -f {script}"
        yield Way("Flink SQL", ("bash", "-c", start), r"\| \+I \|", (f"{flink}/bin/stop-cluster.sh",))
    if pathway:
        program = folder / "first.py"
        program.write_text(PATHWAY)
        yield Way("Pathway", (str(pathway), str(program)), "result {")


def main() -> None:
    """Print the fastest run of each way."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--flink", type=Path)
    arguments.add_argument("--pathway", type=Path)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for way in ways(Path(folder), given.flink, given.pathway):
            if given.only not in way.name:
                continue
            runs = [way.seconds() for _ in range(given.runs)]
            print(f"{way.name}: {min(runs):.1f} s (of {', '.join(f'{each:.1f}' for each in runs)})", flush=True)


if __name__ == "__main__":
    main()
