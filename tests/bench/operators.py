"""Every operator alone, over memory and RocksDB: `python -m tests.bench.operators [--rows N] [--only NAME] [--in …]`.

State grows to 10,000 rows, 100,000 and so on up to N, by default a million. The output per size: rows per second of CPU
while state grew to it; the cost of a change in batches of 1000 changes (500 updates, or inserts if the operator takes
no updates); the cost of a batch with a single update; and bytes of state per row. Costs are means, with the worst in
parentheses. All figures are CPU time of the process that runs the operator, which other work on the machine hardly
changes. Over RocksDB the operators run in one query, one shard each. Wall time shows how long they wait for the state
store. The JVM's CPU is only known for all of them together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from rowkind.service.spark.session import session
from tests.bench.measuring import Figures, in_memory, on_rocksdb
from tests.bench.scenarios import PROBES, SCENARIOS, steps

SMALLEST = 10_000


def report(name: str, sizes: Sequence[int], figures: Sequence[Figures]) -> None:
    """Print a line per size of the state."""
    script = list(steps(sizes))
    for size in sizes:
        of_size = [one for (of, _), one in zip(script, figures, strict=True) if of == size]
        grow, thousands, ones = of_size[: -2 * PROBES], of_size[-2 * PROBES : -PROBES], of_size[-PROBES:]
        rate = sum(one.changes for one in grow) / sum(one.cpu for one in grow)
        each = [1e6 * one.cpu / one.changes for one in thousands]
        single, waited = (
            [1e3 * value for value in values] for values in ([o.cpu for o in ones], [o.waiting for o in ones])
        )
        state = of_size[-1].state
        print(
            f"{name:30}{size:10}{rate:12,.0f}{np.mean(each):9.1f} ({max(each):7.1f}){np.mean(single):9.2f} "
            f"({max(single):6.2f}){np.mean(waited):9.2f}{state.bytes / max(1, state.rows):8.0f}",
            flush=True,
        )


HEADER = (
    f"{'':30}{'':10}{'':12}{'us CPU per change':>19}{'ms CPU of a batch':>18}{'ms of':>9}{'bytes':>8}\n"
    f"{'':30}{'rows':>10}{'rows/s CPU':>12}{'of 1000':>19}{'of 1 update':>18}{'waiting':>9}{'per row':>8}"
)


def main() -> None:
    """Run the selected operators and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of state in the end; 10 million take long")
    parser.add_argument("--only", default="", help="a part of the names of the operators to run")
    parser.add_argument("--in", dest="world", choices=["memory", "rocksdb"], default=None)
    arguments = parser.parse_args()
    sizes = [SMALLEST]
    while sizes[-1] < arguments.rows:
        sizes.append(min(10 * sizes[-1], arguments.rows))
    script = [step for _, step in steps(sizes)]
    numbers = [number for number, one in enumerate(SCENARIOS) if arguments.only in one.name]
    if arguments.world != "rocksdb":
        print(f"over memory\n{HEADER}")
        for number in numbers:
            report(SCENARIOS[number].name, sizes, in_memory(SCENARIOS[number], script))
    if arguments.world != "memory":
        with tempfile.TemporaryDirectory() as folder:
            spark = session("operators", master="local[2]", parallelism=2, checkpoint=folder)
            started = time.perf_counter()
            figures = on_rocksdb(spark, numbers, script, Path(folder) / "query")
            wall, cpu = time.perf_counter() - started, _cpu_of_jvm(spark)
            spark.stop()
        print(f"\nover RocksDB, {len(script)} batches in {wall:.0f} s, {cpu:.0f} s of CPU of the JVM\n{HEADER}")
        for number in numbers:
            report(SCENARIOS[number].name, sizes, figures[number])


def _cpu_of_jvm(spark: SparkSession) -> float:
    """Return the CPU seconds of Spark's JVM so far."""
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    name = beans.getRuntimeMXBean().getName()
    fields = Path(f"/proc/{name.partition('@')[0]}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
