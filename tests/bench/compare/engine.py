"""What the benchmark asks of a system that keeps a query's result up to date."""

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
    """A system refuses a query, or has failed; the message is its own."""


@dataclass(frozen=True)
class Progress:
    """What a system tells of itself.

    - `rows`: how many records of the topics it has taken in.
    - `stages`: seconds of its tasks by stage, as far as it tells.
    - `batches`: how many it has done, and `batch_seconds` that they took; 0 for a system without batches.
    """

    rows: int
    stages: dict[str, float] = field(default_factory=dict)
    batches: int = 0
    batch_seconds: float = 0.0


class Running(Protocol):
    """A system that runs a query."""

    @property
    def pid(self) -> int:
        """The process that is it, or the parent of all that are."""

    def progress(self) -> Progress:
        """How far it is; one question to it. Raises EngineError if it has failed."""

    def state_bytes(self) -> int:
        """Bytes of its state as it is stored durably."""


class Engine(Protocol):
    """A system."""

    name: str
    transactional: bool
    """Whether the result becomes visible in transactions."""
    framed: bool
    """Whether the rows of the result have Confluent's frame."""

    def sql(self, query: Query) -> str:
        """The query as it is told to this system."""

    def run(self, setting: Setting) -> AbstractContextManager[Running]:
        """Start the query and stop it in the end."""
