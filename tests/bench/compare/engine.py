"""The interface of a system that keeps a query's result up to date, as the benchmark uses it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.bench.compare.queries import Query
from tests.bench.compare.workload import Variant

SINK_PARTITIONS = 4


@dataclass(frozen=True)
class Setting:
    """One run of one query.

    - `topics`: the topic of each table. `sink`: the topic of the result.
    - `folder`: for schemas, checkpoints and state; a new one for each run.
    - `quick`: whether low latency counts for more than throughput.
    - `options`: further settings of Flink.
    """

    servers: str
    schemas: Path
    folder: Path
    query: Query
    variant: Variant
    topics: dict[str, str]
    sink: str
    parallelism: int = 2
    quick: bool = False
    options: dict[str, str] = field(default_factory=dict)


class EngineError(Exception):
    """A system refuses a query or has failed; the message is the system's own."""


@dataclass(frozen=True)
class Progress:
    """The progress that a system reports.

    - `rows`: how many records of the topics it has read.
    - `stages`: task seconds by stage, if it reports them.
    - `batches`: the number of finished batches, and `batch_seconds` their duration; 0 for a system without batches.
    """

    rows: int
    stages: dict[str, float] = field(default_factory=dict)
    batches: int = 0
    batch_seconds: float = 0.0


class Running(Protocol):
    """A system that runs a query."""

    @property
    def pid(self) -> int:
        """Return the system's process, or the parent of all its processes."""

    def progress(self) -> Progress:
        """Return the progress, with one request. Raises EngineError if the system has failed."""

    def state_bytes(self) -> int:
        """Return the bytes of the system's state in durable storage."""


class Engine(Protocol):
    """A system under test."""

    name: str
    transactional: bool
    """Whether the result becomes visible in transactions."""
    framed: bool
    """Whether the rows of the result have Confluent's frame."""

    def sql(self, query: Query) -> str:
        """Return the query in this system's dialect."""

    def run(self, setting: Setting) -> AbstractContextManager[Running]:
        """Start the query, and stop it at the end."""
