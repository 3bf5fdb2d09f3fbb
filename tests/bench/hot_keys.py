"""`python -m tests.bench.hot_keys`: the cost of a hot key for the slowest task, with more and more tasks.

Keys follow Zipf's law: with exponent 1.1, one of 100,000 keys has an eighth of all rows, with 1.5 two fifths. A batch
of a real plan is read in parts, distributed to 64 shards and processed shard by shard. CPU time of this process is
measured for each shard. With T tasks, each task has every T-th shard, and a stage takes as long as its slowest task.
The table has the resulting time per batch, with and without the remedy for hot keys, and the remedy's total CPU cost.
The first batch does not count, because it loads the customers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rowkind.avro.codec import encode
from rowkind.avro.schema import Record
from rowkind.operators.aggregate import partial as partial_aggregate
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Rows
from rowkind.operators.rank import local_top_k as contenders
from rowkind.service.execute.members import addressed
from rowkind.service.execute.route import deliver, scanned
from rowkind.service.execute.stage import ShardBatch, members, run
from rowkind.service.execute.watermarks import Watermarks
from rowkind.service.job.load import load
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryState, pruned
from tests.bench.compare import page
from tests.bench.compare.page import Table

_PAGE = Path("docs/how-to/spread-hot-keys.md")
_SHARDS = 64
_READERS = 8
_KEYS = 100_000
_TASKS = (2, 8, 32)
_EXPONENTS = (1.1, 1.5)
_JOB = """
job: hot
tables:
  clicks: {{mode: append, columns: {{customer: INT NOT NULL, page: INT NOT NULL, spent: DOUBLE NOT NULL}}}}
  moves: {{mode: retract, columns: {{customer: INT NOT NULL, page: INT NOT NULL, spent: DOUBLE NOT NULL}}}}
  customers: {{mode: append, primary_key: id, columns: {{id: INT NOT NULL, name: INT NOT NULL}}}}
sinks:
  result: {{mode: retract, topic: result, sql: "{sql}"}}
"""


@dataclass(frozen=True)
class Question:
    """A query over clicks, moves and customers, and a remedy for its hot keys.

    `switch`: the module whose `WORTH` is set to 0 to leave the remedy out; without it the remedy is a hint.
    """

    name: str
    sql: str
    remedy: str
    switch: str = ""


_TOP = (
    "SELECT * FROM (SELECT {hint}*, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY spent DESC) AS r FROM %s) "
    "WHERE r <= 10"
)
QUESTIONS = (
    Question(
        "count and sum by customer",
        "SELECT customer, COUNT(*) AS n, SUM(spent) AS s FROM clicks GROUP BY customer",
        "pre-aggregation",
        "partial_aggregate",
    ),
    Question("top 10 of each customer, append-only", _TOP % "clicks", "local top-k", "contenders"),
    Question("top 10 of each customer, retractions", _TOP % "moves m", "SKEW('m')"),
    Question(
        "clicks with their customers",
        "SELECT {hint}m.*, c.name FROM clicks m JOIN customers c ON m.customer = c.id",
        "SKEW('m')",
    ),
)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hot_keys", description="What a hot key costs.")
    parser.add_argument("--rows", type=int, default=400_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--only", default="", help="a part of the names of the queries to run")
    parser.add_argument("--write", action="store_true", help=f"put the table into {_PAGE}")
    given = parser.parse_args()
    rows = []
    for question in (each for each in QUESTIONS if given.only in each.name):
        for exponent in _EXPONENTS:
            found = [_costs(question, exponent, given.rows, given.batches, remedied=each) for each in (False, True)]
            rows.append(_row(question, exponent, found))
            print(rows[-1], file=sys.stderr, flush=True)
    head = ["", "Zipf", "remedy", *(f"{count} tasks" for count in _TASKS), f"even, {max(_TASKS)}", "CPU"]
    note = (
        "Milliseconds of a batch, which lasts as long as its slowest tasks: without → with the remedy. `even`: the "
        "time without the remedy if all tasks had the same amount of work. `CPU`: CPU time with the remedy divided by "
        "the time without it. "
        f"{given.batches} batches of {given.rows:,} rows over {_KEYS:,} keys in {_SHARDS} shards; operators alone, "
        "without Spark and Kafka."
    )
    table = Table("Hot keys", head, rows, note)
    print(table.text())
    if given.write:
        page.write("hot keys", [table], _PAGE)
    return 0


def _row(question: Question, exponent: float, found: Sequence[_Costs]) -> list[str]:
    plain, remedied = found
    times = [f"{plain.longest(count):.0f} → {remedied.longest(count):.0f}" for count in _TASKS]
    even = 1000 * plain.cpu / max(_TASKS) / plain.batches
    return [question.name, f"{exponent}", question.remedy, *times, f"{even:.0f}", f"{remedied.cpu / plain.cpu:.2f}"]


class _Costs:
    """CPU seconds of the readers, and by level and shard, over a number of batches."""

    def __init__(self) -> None:
        self.batches = 0
        self.reading = 0.0
        self.working: dict[tuple[int, int], float] = defaultdict(float)

    @property
    def cpu(self) -> float:
        """The total."""
        return self.reading + sum(self.working.values())

    def longest(self, tasks: int) -> float:
        """Return the time of a batch in ms: the sum of its stages' slowest tasks, with reading spread evenly."""
        of_task: dict[int, list[float]] = defaultdict(lambda: [0.0] * tasks)
        for (level, shard), seconds in self.working.items():
            of_task[level][shard % tasks] += seconds
        longest = sum(max(times) for times in of_task.values())
        return 1000 * (longest + self.reading / tasks) / self.batches


def _costs(question: Question, exponent: float, rows: int, batches: int, *, remedied: bool) -> _Costs:
    hint = f"/*+ {question.remedy} */ " if remedied and not question.switch else ""
    with tempfile.TemporaryDirectory(prefix="rowkind-hot-") as folder, _without(question.switch, remedied):
        file = Path(folder) / "job.yaml"
        file.write_text(_JOB.format(sql=question.sql.format(hint=hint)))
        return _run(plan(load(file), "result"), exponent, rows, batches)


@contextmanager
def _without(switch: str, remedied: bool) -> Iterator[None]:
    """Leave out the first step of an aggregate or a rank."""
    modules = {"contenders": contenders, "partial_aggregate": partial_aggregate}
    if not switch or remedied:
        yield
        return
    worth = modules[switch].WORTH
    modules[switch].WORTH = 0.0
    try:
        yield
    finally:
        modules[switch].WORTH = worth


def _run(sink: PhysicalSink, exponent: float, rows: int, batches: int) -> _Costs:
    whole = graph([sink])
    stage = members(whole, _SHARDS)
    states = [MemoryState() for _ in range(_SHARDS)]
    costs, random = _Costs(), np.random.default_rng(11)
    for number in range(batches + 1):
        if number == 1:
            costs = _Costs()
        costs.batches += 1
        inbox: dict[int, list[Batch]] = defaultdict(list)
        for scan in whole.scans:
            record = scan.scan.source.declared
            payload = _encoded(
                record, _customers(number) if record.name == "customers" else _clicks(random, exponent, rows)
            )
            arrived = np.arange(len(payload)) + number * rows
            for reader in range(_READERS):
                part = slice(reader, None, _READERS)
                some = Rows(
                    np.zeros(len(arrived[part]), np.int8),
                    arrived[part],
                    payload.take(pa.array(np.arange(len(payload))[part])),
                )
                started = time.process_time()
                for shard, _, read in scanned(scan, Emitted(pruned(scan.scan, {record.name: some})), _SHARDS):
                    inbox[shard].append(read)
                costs.reading += time.process_time() - started
        for member, operator in zip(stage, whole.operators, strict=True):
            for shard in range(_SHARDS):
                mine = {member.place: [addressed(each, member.place) for each in inbox[shard]]}
                started = time.process_time()
                one = ShardBatch(shard, number, Watermarks(), Watermarks(), mine)
                outputs = run([member], one, states[shard])
                gone = [sent for output in outputs for sent in output.sent]
                left = [each for way, sent in gone for each in deliver(way, sent, _SHARDS, shard)]
                costs.working[operator.level, shard] += time.process_time() - started
                for to, _, sent in left:
                    inbox[to].append(sent)
    return costs


def _encoded(record: Record, columns: Mapping[str, np.ndarray]) -> pa.BinaryArray:
    return encode(record, {name: pa.array(column, record.type(name).arrow) for name, column in columns.items()})


def _customers(batch: int) -> Mapping[str, np.ndarray]:
    ids = np.arange(_KEYS if batch == 0 else 0)
    return {"id": ids, "name": ids}


def _clicks(random: np.random.Generator, exponent: float, rows: int) -> Mapping[str, np.ndarray]:
    share = 1.0 / np.arange(1, _KEYS + 1) ** exponent
    drawn = np.searchsorted(np.cumsum(share / share.sum()), random.random(rows))
    return {
        "customer": np.minimum(drawn, _KEYS - 1),
        "page": random.integers(0, 1000, rows),
        "spent": random.random(rows),
    }


if __name__ == "__main__":
    sys.exit(main())
