"""The model of a job file: what may stand in it and what it means when left out.

Reading never touches the network: which columns a table has when neither `columns` nor `schema` says so is asked of
the registry when the job is planned (`service.job.columns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from rowkind.avro.registry import client_settings
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.budget import Budget, budget, least
from rowkind.service.job import duration
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.fields import (
    ColumnNames,
    Duration,
    Identifier,
    ResourceName,
    Section,
    SettingsField,
    Size,
    TopicName,
)
from rowkind.service.job.functions import JobFunction
from rowkind.service.job.substitution import Settings
from rowkind.service.job.table import RowKindSettings, Table
from rowkind.service.python.code import Code
from rowkind.service.python.errors import FunctionError
from rowkind.service.source_table import OnExpire

OnLostResult = Literal["fail", "rebuild", "ignore"]
"""What becomes of a job when a result topic has lost rows."""


class Sink(Section):
    """A result topic, and the query whose result it keeps."""

    topic: TopicName = ""
    """The topic's name; that of the sink if left out."""

    format: Literal["avro", "json"] = "avro"
    """How values and keys are written."""

    connect_schema: bool = False
    """Whether keys and values in JSON have Kafka Connect's schema beside them, as `{"schema": …, "payload": …}`, which
    sink connectors read with `schemas.enable: true`."""

    mode: ChangelogMode
    """What its changes say: rows that only come, where a query that can take rows back is refused; the newest row of
    each `key`, and null once it is gone, in a compacted topic; or rows that come and are taken back, by the header
    of `row_kind`."""

    key: ColumnNames = ()
    """The columns of the records' keys. An upsert sink needs it, and it has to be a unique key of the result."""

    sql: str
    """The query, in Spark's SQL."""

    on_conflict: Literal["refuse", "first", "last"] = "refuse"
    """Which row of an upsert sink stands under a key that several rows of the result share: the first or the last one
    to arrive, or none, since such a query is refused."""

    emit: Literal["changes", "final"] | None = None
    """When rows of windows come: at once, with their corrections, or once, when they are final. If left out, final in
    an append sink and at once elsewhere."""

    row_kind: RowKindSettings = RowKindSettings()
    """How a record says whether its row is inserted, updated or deleted; `missing` and `unknown` mean nothing here."""

    partitions: int | None = Field(default=None, gt=0)
    """How many partitions the topic gets where it is made; if left out, the job's `parallelism`."""

    replication: int | None = Field(default=None, gt=0)
    """How many replicas it gets then; the broker's own number if left out."""

    create: bool = True
    """Whether the topic is made where it is not there."""

    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """Whether changes are written in transactions; without them a change may come twice, which only an upsert sink
    bears."""

    on_lost: OnLostResult = "fail"
    """What becomes of the job when the topic has lost rows of the result: it was deleted, recreated, shortened by
    retention, or has other partitions than before. The job ends; or the query is rebuilt, and what is missing written;
    or it goes on, and the topic stays as it is."""

    isolated: bool = False
    """Whether it gets a query of its own: it shares nothing with the other sinks, they wait neither for it nor it for
    them, and it reads its topics by itself."""

    @model_validator(mode="after")
    def _whole(self) -> Sink:
        if self.mode == "upsert" and not self.key:
            raise ValueError("an upsert sink needs `key`: the columns that identify a row of the result")
        if self.connect_schema and self.format != "json":
            raise ValueError(f"`connect_schema` is for `format: json`; this sink has `format: {self.format}`")
        if self.on_conflict != "refuse" and self.mode != "upsert":
            raise ValueError(f"`on_conflict` is for an upsert sink; this one is {self.mode}")
        if self.delivery == "at_least_once" and self.mode != "upsert":
            raise ValueError(
                f"`delivery: at_least_once` may write changes twice, which only an upsert sink bears; this one is "
                f"{self.mode}"
            )
        return self


class BatchSettings(Section):
    """How much one micro-batch takes."""

    max_rows: int = Field(default=500_000, gt=0)
    """A batch ends after so many rows of all tables together; earlier after 64 MB or what `memory` has room for, and
    after 200,000 rows where more take longer than two seconds."""


class DeadLetterSettings(Section):
    """Where records go that are no rows. Without a topic the first of them stops the job."""

    topic: TopicName | None = None
    """The topic that takes them, each with its origin and the reason."""

    tolerance: Literal["none", "all"] = "all"
    """With `none` the first dead letter stops the job all the same."""

    max_ratio: float | None = Field(default=None, gt=0, le=1)
    """The job stops when more than this part of a table's records, of the last minute or hundred, are dead letters."""

    @model_validator(mode="after")
    def _whole(self) -> DeadLetterSettings:
        if self.tolerance == "all" and self.topic is None:
            raise ValueError("`tolerance: all` needs a `topic`: nothing is thrown away unseen")
        return self


_OUTAGE = "outage"
"""The one entry of `kafka` that is ours and not librdkafka's."""


class Job(Section):
    """One job file. `kafka`, `registry` and `checkpoint` may be missing for `check`, `explain` and `try`."""

    name: ResourceName = Field(alias="job")
    """The job's name, which also names its transactions, its progress topic and its metrics."""

    kafka: SettingsField | None = None
    """Where Kafka is and how it is spoken to."""

    registry: SettingsField | None = None
    """Where schemas are: a registry with Confluent's API by its `url`, or a `folder` of .avsc files."""

    status: SettingsField | None = None
    """Who may see the status port: TLS by a certificate and its key, a login by user and password."""

    checkpoint: str | None = None
    """The folder that keeps offsets and state, or a URL as `s3a://bucket/jobs`."""

    ttl: Duration | None = None
    """A row that was written so long ago is forgotten, in all tables that do not say otherwise; never if left out."""

    on_expire: OnExpire = "forget"
    """Whether a row whose `ttl` is over is only forgotten, or taken back from the results as if it had been deleted."""

    parallelism: int = Field(default=2, gt=0, le=1024)
    """In how many tasks the shards are worked on."""

    shards: int | None = Field(default=None, gt=0, le=1024)
    """How many parts state has, for good: a power of two. If left out, four for each task of the first run."""

    memory: Size | None = None
    """What all processes of the job take together at most; without it, as much as they happen to."""

    batch: BatchSettings = BatchSettings()
    """How much one micro-batch takes."""

    unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore"
    """What becomes of a retraction that finds no row, beside being counted."""

    on_error: Literal["fail", "dead_letter", "null"] = "fail"
    """What becomes of a row on which an expression fails: the job does, or the row is a dead letter, or the expression
    is NULL there; where it may not be, the row is a dead letter again."""

    promises: Literal["warn", "fail"] = "warn"
    """What becomes of the job when a table does not keep what is promised of it: `exact`, a primary key, NOT NULL."""

    atomic: bool = False
    """Whether what a batch changes in all topics is one transaction: whoever reads several of them, committed records
    only, never sees a part of a batch. One task then writes them all."""

    dead_letters: DeadLetterSettings = DeadLetterSettings(tolerance="none")
    """Where records go that are no rows."""

    tables: dict[Identifier, Table] = Field(min_length=1)
    """The source topics, by the names that the SQL uses."""

    code: str | None = None
    """The folder or the wheel with the code of the `functions`, seen from the job file."""

    functions: dict[Identifier, JobFunction] = Field(default_factory=dict)
    """Functions in Python, by their names in SQL."""

    views: dict[Identifier, str] = Field(default_factory=dict)
    """Queries by name, which sinks and other views may read like tables."""

    sinks: dict[ResourceName, Sink] = Field(min_length=1)
    """The result topics, each with its SQL."""

    _file: Path = PrivateAttr(default=Path("job.yaml"))
    _lines: dict[tuple[str | int, ...], int] = PrivateAttr(default_factory=dict)
    _python: Code | None = PrivateAttr(default=None)

    @field_validator("kafka")
    @classmethod
    def _servers(cls, value: Settings | None) -> Settings | None:
        if value is not None and "bootstrap.servers" not in value:
            raise ValueError("`bootstrap.servers` is missing: where Kafka is, such as localhost:9092")
        if value is not None and _OUTAGE in value:
            try:
                duration.parse(value[_OUTAGE])
            except ValueError as error:
                raise ValueError(f"`{_OUTAGE}`: {error}") from None
        return value

    @field_validator("status")
    @classmethod
    def _guarded(cls, value: Settings | None) -> Settings | None:
        for one, other in (("certificate", "key"), ("user", "password")):
            if value is not None and (one in value) != (other in value):
                raise ValueError(f"`{one}` and `{other}` belong together")
        if value is not None and (unknown := value.keys() - {"certificate", "key", "user", "password"}):
            raise ValueError(f"{min(unknown)!r} is not known here: expected certificate and key, user and password")
        return value

    @field_validator("on_error", mode="before")
    @classmethod
    def _null(cls, value: Any) -> Any:
        """The word, which YAML takes for nothing."""
        return "null" if value is None else value

    @field_validator("registry")
    @classmethod
    def _one_registry(cls, value: Settings | None) -> Settings | None:
        if value is not None and ("url" in value) == ("folder" in value):
            raise ValueError(
                "expected either `url`, a registry with Confluent's API, or `folder`, a folder of .avsc files"
            )
        if value is not None and "folder" in value and len(value) > 1:
            raise ValueError("a folder of schemas takes no further settings")
        if value is not None:
            client_settings(value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _topics(cls, value: Any) -> Any:
        """A table's or sink's topic is called like itself unless it says otherwise."""
        if not isinstance(value, dict):
            return value
        named = dict(value)
        for kind in ("tables", "sinks"):
            if isinstance(entries := value.get(kind), dict):
                named[kind] = {
                    name: {"topic": name, **entry} if isinstance(entry, dict) else entry
                    for name, entry in entries.items()
                }
        return named

    @model_validator(mode="after")
    def _whole(self) -> Job:
        lowered: dict[str, str] = {}
        for name in (*self.tables, *self.views):
            if (other := lowered.setdefault(name.lower(), name)) is not name:
                raise ValueError(f"{other!r} and {name!r} are the same name in SQL: rename one")
        if self.dead_letters.topic is None:
            for setting in self._making_dead_letters():
                raise ValueError(f"{setting} needs `dead_letters: {{topic: …}}`")
        if self.memory is not None and self.memory < (needed := least(self.parallelism)):
            raise ValueError(
                f"`memory` is {self.memory >> 20}m, and a job with parallelism {self.parallelism} takes "
                f"{needed >> 20}m at least"
            )
        if self.shards is not None and self.shards & (self.shards - 1):
            raise ValueError(f"`shards` is {self.shards}, and no power of two, whose parts are even")
        if self.shards is not None and self.shards < self.parallelism:
            raise ValueError(
                f"`parallelism` is {self.parallelism}, and each task needs one of the {self.shards} `shards`"
            )
        if self.functions and self.code is None:
            raise ValueError("`functions` need `code`: the folder or the wheel that they are in")
        topics: dict[str, str] = {}
        for name, sink in self.sinks.items():
            if sink.topic in topics:
                raise ValueError(f"the sinks {topics[sink.topic]!r} and {name!r} both write to topic {sink.topic!r}")
            topics[sink.topic] = name
        # Without Kafka, as in `rowkind try`, no topic is read or written.
        if self.kafka is not None:
            self._without_loops(topics)
        return self

    def _making_dead_letters(self) -> Iterator[str]:
        """The settings by which there are dead letters."""
        if self.unmatched == "dead_letter":
            yield "`unmatched: dead_letter`"
        if self.on_error != "fail":
            yield f"`on_error: {self.on_error}`"
        for name, table in self.tables.items():
            if table.on_bad_update != "keep":
                yield f"`on_bad_update: {table.on_bad_update}` of table {name}"
            if table.watermark is not None and table.watermark.late == "dead_letter":
                yield f"`late: dead_letter` in the watermark of {name}"

    def _without_loops(self, written: dict[str, str]) -> None:
        """Refuse a topic that the job would write for more than one reason; `written` has the sinks by their topics."""
        letters = self.dead_letters.topic
        if letters in written:
            raise ValueError(
                f"topic {letters!r} takes the dead letters and the result of sink {written[letters]!r}, and nobody "
                "could tell them apart: name another topic in `dead_letters`"
            )
        for name, table in self.tables.items():
            if table.topic == letters:
                raise ValueError(
                    f"table {name!r} reads topic {letters!r}, which takes the dead letters: each would be read, and be "
                    "a dead letter again. Name another topic in `dead_letters`, or read the letters in another job"
                )
            if table.topic in written:
                raise ValueError(
                    f"table {name!r} reads topic {table.topic!r}, which sink {written[table.topic]!r} writes: the job "
                    "would read its own results. Let both sinks read a view (`views`), or split the job in two"
                )
        for topic in (*written, *(table.topic for table in self.tables.values()), letters or ""):
            if topic.startswith(f"{self.name}.") and (topic.endswith(".progress") or ".filling-" in topic):
                raise ValueError(f"topic {topic!r} has the name of one that the job itself makes: name another topic")

    @property
    def brokers(self) -> dict[str, str]:
        """The settings of `kafka` that are for its clients."""
        return {name: value for name, value in (self.kafka or {}).items() if name != _OUTAGE}

    @property
    def outage(self) -> int | None:
        """For how many ms brokers that went away are waited for; None for as long as it takes."""
        written = (self.kafka or {}).get(_OUTAGE)
        return None if written is None else duration.parse(written)

    @property
    def budget(self) -> Budget:
        """How its memory is divided."""
        return budget(self.memory, self.parallelism)

    def python(self) -> Code | None:
        """The code of its functions, None if it has none. Raises JobError."""
        if not self.functions or self.code is None:
            return None
        try:
            # All of it is read, once.
            self._python = self._python or Code.at(self.file.parent / self.code)
        except FunctionError as error:
            raise JobError(str(self.file), [Problem(self.line("code"), "code", str(error))]) from None
        return self._python

    @property
    def file(self) -> Path:
        """The file that the job was read from."""
        return self._file

    def line(self, *path: str | int) -> int:
        """The line of a field, or of the nearest field around it that the file has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 0)

    def check_runnable(self) -> None:
        """Raise JobError if something is missing that only a job that runs needs."""
        wanted = {
            "kafka": (self.kafka, "where Kafka is, as `{bootstrap.servers: …}`"),
            "checkpoint": (self.checkpoint, "the folder that keeps offsets and state"),
        }
        formats = [each.format for each in self.tables.values()] + [each.format for each in self.sinks.values()]
        if "avro" in formats + [each.key_format for each in self.tables.values()]:
            wanted["registry"] = self.registry, "where schemas are, as `{url: …}` or `{folder: …}`"
        missing = [f"{name} is missing: {what}" for name, (value, what) in wanted.items() if value is None]
        if missing:
            raise JobError(str(self._file), [Problem(self.line(), "", text) for text in missing])

    def read_from(self, file: Path, lines: dict[tuple[str | int, ...], int]) -> Job:
        """This job, knowing where it was read from."""
        self._file = file
        self._lines = lines
        return self
