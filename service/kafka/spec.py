"""What a source and a sink are told, as frozen values that travel to Spark's workers in one option.

The option's name holds the word "secret", so that Spark redacts its value wherever it shows options: the settings of
Kafka and of the registry may contain passwords.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rowkind.avro.registry import Registry
from rowkind.operators.emission import ChangelogMode
from rowkind.service.execute.route import Route
from rowkind.service.physical import PhysicalScan, Start
from rowkind.service.row_kind import RowKindHeader

OPTION = "secret.spec"


@dataclass(frozen=True)
class SourceSpec:
    """A source: every scan that feeds one stage of operators, or those that feed a sink.

    - `members`: for each scan the place of the operator in the stage that takes its rows in; all 0 if not given.
    - `kafka`: librdkafka settings.
    - `placement`: Spark's label of each of the consumer's logical shards.
    - `tasks`: the most read tasks of a batch; `rows_per_task`: the fewest rows for which there is a further one.
    - `rows_per_batch`: the most rows of a batch, over all topics.
    - `tolerate`: records that are no rows become dead letters; else they fail the query.
    - `opens`: the query has something to say of empty topics too. The source has a first batch then even if there is
      nothing to read, and each of its tasks sends a block, perhaps an empty one.
    - `starts`: all topics of the query, with where each is read from; those of the scans if not given.
    - `agreement`: a folder on the driver in which the sources of the query agree on each batch; None for a single one.
    - `drain_file`: a file on the driver; from when it exists the source offers nothing new, so that a job can end
      between two batches.
    """

    scans: tuple[PhysicalScan, ...]
    kafka: Mapping[str, str]
    registry: Registry
    members: tuple[int, ...] = ()
    placement: tuple[int, ...] = (0,)
    tasks: int = 2
    rows_per_task: int = 5_000
    rows_per_batch: int = 200_000
    tolerate: bool = False
    opens: bool = False
    starts: Mapping[str, Start] = field(default_factory=dict)
    agreement: str | None = None
    drain_file: str | None = None

    @property
    def routes(self) -> tuple[Route, ...]:
        """The way of each scan's rows to the consumer."""
        members = self.members or (0,) * len(self.scans)
        return tuple(
            Route(scan.calc, member, len(self.placement)) for scan, member in zip(self.scans, members, strict=True)
        )


@dataclass(frozen=True)
class SinkSpec:
    """A sink: a topic and how it is written.

    - `keyed`: changes carry the sink's unique key, packed as the Kafka key.
    - `by_seq`: they are an upsert stream as it was read (`operators.emission.net`).
    - `key_schema`, `value_schema`: ids in the registry.
    - `row_kind`: the header of the row kind, None for none.
    - `transactions`: exactly once; else at least once, for upsert sinks.
    - `transaction_timeout_ms`: how long a transaction may stay open; a task opens it only when all is ready to be sent.
    - `run`: the name of this run of the job; that of a later run is greater (`service.kafka.progress`).
    - `progress_topic`: this sink's own, with a partition for every task of a batch.
    - `report_folder`: where the driver leaves a report of each batch.
    """

    job: str
    sink: str
    topic: str
    form: ChangelogMode
    keyed: bool
    by_seq: bool
    value_schema: int
    kafka: Mapping[str, str]
    progress_topic: str
    report_folder: str
    key_schema: int | None = None
    dead_letter_topic: str | None = None
    row_kind: RowKindHeader | None = field(default_factory=RowKindHeader)
    transactions: bool = True
    transaction_timeout_ms: int = 60_000
    run: str = ""

    def transactional_id(self, partition: int) -> str:
        """The id under which one task partition writes: each run of the job fences the one before."""
        return f"{self.job}-{self.sink}-{partition}"


def to_option(spec: SourceSpec | SinkSpec) -> str:
    """The value of the option `OPTION`."""
    return base64.b64encode(pickle.dumps(spec)).decode()


def from_option(options: Mapping[str, str]) -> Any:
    """The spec that `to_option` made."""
    return pickle.loads(base64.b64decode(options[OPTION]))  # noqa: S301 - our own, from our own driver
