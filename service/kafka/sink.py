"""Run a write task: net its blocks' changes, and write them exactly once or at least once, as each sink requires."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.service.execute.metrics import add, sample
from rowkind.service.kafka import at_least_once, printed_changes
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.record_builder import prepare
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.transaction import Outcome, write_once
from rowkind.service.kafka.written_sample import WrittenSample


@dataclass
class Counted:
    """A write task's counters: `carried` arrived with the task's blocks, `written` are those of its own work.

    `samples` are samples of the records that the task has written.
    """

    carried: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)
    samples: list[WrittenSample] = field(default_factory=list)


def write(spec: WriterSpec, batch_partition: BatchPartition, blocks: Sequence[pa.Buffer]) -> Counted:
    """Write the blocks of one task and return its counters. Raises ChangelogError.

    A batch before `spec.written` is already in Kafka, so only the counters that arrived with it are returned.
    """
    task = Counted()
    with _timed(task, spec.query, "unpack"):
        unpacked = [Block.from_bytes(block) for block in blocks]
        for block in unpacked:
            add(task.carried, block.counters)
    if extent := next((block.extent for block in unpacked if block.extent), ""):
        batch_partition = replace(batch_partition, batch=Offset.from_json(json.loads(extent)).number, extent=extent)
    if batch_partition.batch < spec.written:
        return task
    with _timed(task, spec.query, "net"):
        whole = Batch.concat([block.batch for block in unpacked])
        once, repeatable = prepare(spec, whole)
    if spec.topicless:
        with _timed(task, spec.query, "send"):
            counters, sampled = printed_changes.write(spec, whole)
            add(task.written, counters)
            task.samples.append(sampled)
    if not (len(once) or len(repeatable) or batch_partition.partition == 0):
        return task
    with _timed(task, spec.query, "send"):
        # The progress is recorded before the results are visible, because a replay must know where the batch began and
        # ended.
        if not spec.transactions:
            at_least_once.record(spec, batch_partition)
        else:
            outcome, retries = write_once(spec, batch_partition, once)
            _count(task, spec.query, outcome, retries)
            if outcome == "committed":
                add(task.written, once.counters)
                task.samples.append(once.sample)
        if len(repeatable):
            at_least_once.write(spec, repeatable)
            add(task.written, repeatable.counters)
            task.samples.append(repeatable.sample)
    return task


def _count(task: Counted, query: str, outcome: Outcome, retries: int) -> None:
    for name, count in {outcome: 1, "retried": retries}.items():
        if count:
            add(task.written, {sample("rowkind_transactions_total", query=query, outcome=name): count})


@contextmanager
def _timed(task: Counted, query: str, stage: str) -> Iterator[None]:
    """Measure how many seconds a stage takes, and add them to the task's counters."""
    started = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - started
        add(task.written, {sample("rowkind_write_seconds_total", query=query, stage=stage): spent})
