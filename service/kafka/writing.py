"""What a write task does: net its blocks, and write them exactly once or at least once, as the sink says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from rowkind.operators.columns.changes import Block, Changes
from rowkind.service.kafka import at_least_once
from rowkind.service.kafka.outgoing import prepare
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.spec import SinkSpec
from rowkind.service.kafka.transaction import write_once
from rowkind.service.metrics import add, sample


@dataclass
class Counted:
    """The counters that rode along with a task's blocks, and those of what it wrote itself."""

    carried: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)


def write(spec: SinkSpec, batch_partition: BatchPartition, blocks: Sequence[pa.Buffer]) -> Counted:
    """Write the blocks of one task. Raises a ChangelogError."""
    task = Counted()
    with _timed(task, spec.sink, "unpack"):
        unpacked = [Block.from_bytes(block) for block in blocks]
        for block in unpacked:
            add(task.carried, block.counters)
    with _timed(task, spec.sink, "net"):
        outgoing = prepare(spec, Changes.concat([block.changes for block in unpacked]))
    if not len(outgoing):
        return task
    with _timed(task, spec.sink, "send"):
        if not spec.transactions:
            at_least_once.write(spec, outgoing)
            add(task.written, outgoing.counters)
            return task
        outcome, retries = write_once(spec, batch_partition, outgoing)
    transactions = {outcome: 1, "retried": retries}
    for name, count in transactions.items():
        if count:
            add(task.written, {sample("rowkind_transactions_total", sink=spec.sink, outcome=name): count})
    if outcome == "committed":
        add(task.written, outgoing.counters)
    return task


@contextmanager
def _timed(task: Counted, sink: str, stage: str) -> Iterator[None]:
    """Adds the seconds of a stage to what a task counts."""
    started = time.perf_counter()
    try:
        yield
    finally:
        add(
            task.written, {sample("rowkind_write_seconds_total", sink=sink, stage=stage): time.perf_counter() - started}
        )
