"""Sampling of a system until it has read all rows and its result has stopped growing.

The warm-up ends with the first sample at which the given number of rows had been read; the measurement starts there. It
ends when the result topic grew for the last time or when the system reported that it had read everything, whichever is
later.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.bench.compare.engine import SINK_PARTITIONS, EngineError, Progress, Running
from tests.bench.compare.process import cpu_seconds, machine_seconds, memory_bytes

_SAMPLE_SECONDS = 0.2
_MEMORY_SECONDS = 1.0
_REST_SECONDS = 4.0
_STALLED_SECONDS = 180.0


@dataclass(frozen=True)
class Sample:
    """A running query at one time: seconds, CPU seconds of the system and of the machine, and bytes."""

    at: float
    progress: Progress
    written: int
    cpu: float
    machine: float
    memory: int


@dataclass(frozen=True)
class Span:
    """The measurement between two samples.

    - `cpu`, `machine`: CPU seconds of the system, and of all processes, the broker's and the benchmark's included.
    - `stages`: task seconds per million rows by stage. `batches`: the seconds of each batch.
    - `memory`: the most bytes at any time, warm-up included. `state`: bytes at the end.
    """

    rows: int
    seconds: float
    cpu: float
    machine: float
    memory: int
    state: int
    stages: dict[str, float]
    batches: list[float]

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds per million rows."""
        return self.cpu / self.rows * 1e6

    @property
    def cores(self) -> tuple[float, float]:
        """How many cores the system used on average, and how many all processes used."""
        return self.cpu / self.seconds, self.machine / self.seconds


def watch(servers: str, topic: str, running: Running, rows: int) -> list[Sample]:
    """Return samples from the start until `rows` rows have been read and the result has stopped growing."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 4})
    samples: list[Sample] = []
    changed = time.monotonic()
    while True:
        before = samples[-1] if samples else None
        now = time.monotonic()
        measure_memory = before is None or int(now / _MEMORY_SECONDS) != int(before.at / _MEMORY_SECONDS)
        sample = Sample(
            now,
            running.progress(),
            _end(admin, topic),
            cpu_seconds(running.pid),
            machine_seconds(),
            memory_bytes(running.pid) if measure_memory else 0,
        )
        samples.append(sample)
        if before is None or (sample.progress.rows, sample.written) != (before.progress.rows, before.written):
            changed = now
        if sample.progress.rows >= rows and now - changed > _REST_SECONDS:
            return samples
        if now - changed > _STALLED_SECONDS:
            raise EngineError(
                f"nothing has happened for {_STALLED_SECONDS:.0f} s: {sample.progress.rows:,} of {rows:,} rows"
            )
        time.sleep(_SAMPLE_SECONDS)


def span(samples: Sequence[Sample], warm_up: int, state: int) -> Span:
    """Return the measurement after the first `warm_up` rows."""
    first = next(sample for sample in samples if sample.progress.rows >= warm_up)
    last = _rest(samples)
    rows = last.progress.rows - first.progress.rows
    if rows <= 0:
        raise EngineError("all rows were read before the warm-up was seen to end: take more --rows")
    stages = {
        stage: (seconds - first.progress.stages.get(stage, 0.0)) / rows * 1e6
        for stage, seconds in sorted(last.progress.stages.items())
    }
    memory = max(sample.memory for sample in samples)
    cpu, machine = last.cpu - first.cpu, last.machine - first.machine
    return Span(rows, last.at - first.at, cpu, machine, memory, state, stages, _batches(samples, first, last))


def _rest(samples: Sequence[Sample]) -> Sample:
    """Return the first sample with the final progress and result."""
    end = samples[-1]
    return next(
        sample for sample in samples if (sample.progress.rows, sample.written) == (end.progress.rows, end.written)
    )


def _batches(samples: Sequence[Sample], first: Sample, last: Sample) -> list[float]:
    """Return the seconds of each batch; batches between the same two samples get their mean."""
    seconds: list[float] = []
    between = [sample for sample in samples if first.at <= sample.at <= last.at]
    for before, after in itertools.pairwise(between):
        count = after.progress.batches - before.progress.batches
        if count:
            seconds += [(after.progress.batch_seconds - before.progress.batch_seconds) / count] * count
    return seconds


def _end(admin: AdminClient, topic: str) -> int:
    """Return how many offsets of the result a consumer of committed records may read."""
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(SINK_PARTITIONS)}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    return sum(answer.result().offset for answer in answers.values())
