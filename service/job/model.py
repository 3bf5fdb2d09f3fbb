"""The model of a job file: its settings, their types, defaults and checks.

Reading a job file does not use the network. If a table has neither `columns` nor `schema`, its columns are requested
from the registry when the job is planned (`service.job.columns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from rowkind.avro.registry import client_settings
from rowkind.service.job import duration
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.fields import (
    Duration,
    Identifier,
    ResourceName,
    Section,
    SettingsField,
    Size,
    TopicName,
)
from rowkind.service.job.file_lines import FileLines
from rowkind.service.job.functions import JobFunction
from rowkind.service.job.sink import Sink, has_topic
from rowkind.service.job.substitution import Settings
from rowkind.service.job.table import Table
from rowkind.service.machine.budget import Budget, budget, least
from rowkind.service.physical.source_table import OnExpire
from rowkind.service.python.code import Code
from rowkind.service.python.errors import FunctionError


class BatchSettings(Section):
    """The limits of a micro-batch."""

    max_rows: int = Field(default=500_000, gt=0)
    """The maximum number of rows in a batch, summed over all tables. A batch ends earlier after 64 MB, when `memory`
    has no room for more, or after 200,000 rows if more would take longer than two seconds."""

    min_interval: Duration | None = None
    """The minimum time from the beginning of a batch to the beginning of the next one. Batches with a longer interval
    use less CPU time, and results appear later. A backlog does not wait. If omitted, a batch begins as soon as there
    are changes."""


class DeadLetterSettings(Section):
    """The destination of records that cannot be read as rows. Without a topic, the first such record stops the job."""

    topic: TopicName | None = None
    """The dead letter topic. Each dead letter has its origin and the reason."""

    tolerance: Literal["none", "all"] = "all"
    """With `none`, the first dead letter stops the job even if there is a topic."""

    max_ratio: float | None = Field(default=None, gt=0, le=1)
    """The job stops if dead letters exceed this ratio of a table's records: the last minute's, or the last 100."""

    @model_validator(mode="after")
    def _whole(self) -> DeadLetterSettings:
        if self.tolerance == "all" and self.topic is None:
            raise ValueError("`tolerance: all` needs a `topic`: dead letters must be written somewhere")
        return self


_OUTAGE = "outage"
"""The only entry of `kafka` that is a setting of Rowkind and not of librdkafka."""


class Job(Section):
    """A job file. For `check`, `explain` and `try`, `kafka`, `registry` and `checkpoint` may be omitted."""

    name: ResourceName = Field(alias="job")
    """The job's name. It is part of the job's transactional ids, progress topic and metrics."""

    kafka: SettingsField | None = None
    """The address of Kafka, and the settings of its clients."""

    registry: SettingsField | None = None
    """Where schemas are stored: the `url` of a registry with Confluent's API, or a `folder` of .avsc files."""

    status: SettingsField | None = None
    """Access to the status port: `certificate` and `key` for TLS, `user` and `password` for a login."""

    checkpoint: str | None = None
    """The folder for offsets and state, or a URL such as `s3a://bucket/jobs`."""

    ttl: Duration | None = None
    """A row expires this long after its last write, in tables without their own `ttl`. If omitted, rows do not
    expire."""

    on_expire: OnExpire = "forget"
    """What happens to an expired row. `forget`: it is dropped from the state, and its results stay. `retract`: it is
    also retracted from the results, as if it had been deleted."""

    parallelism: int = Field(default=2, gt=0, le=1024)
    """The number of tasks that work on the shards."""

    shards: int | None = Field(default=None, gt=0, le=1024)
    """The number of shards of the state, a power of two; fixed at the first run. If omitted, four per task of that
    run."""

    memory: Size | None = None
    """The limit on the total memory of the job's processes. If omitted, there is no limit."""

    batch: BatchSettings = BatchSettings()
    """The limits of a micro-batch."""

    unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore"
    """What happens to a retraction that matches no row. It is counted in any case. `ignore`: it is ignored.
    `dead_letter`: it becomes a dead letter. `fail`: the job stops."""

    on_error: Literal["fail", "dead_letter", "null"] = "fail"
    """What happens if an expression fails on a row. `fail`: the job fails. `dead_letter`: the row becomes a dead
    letter. `null`: the expression is NULL; if it must not be NULL, the row becomes a dead letter."""

    promises: Literal["warn", "fail"] = "warn"
    """What the job does if a table's records violate `exact`, its primary key or a NOT NULL. `warn`: it warns. `fail`:
    it stops."""

    atomic: bool = False
    """Whether a batch writes its changes to all topics in one transaction. Consumers that read committed records of
    several topics then never see only a part of a batch. A single task writes all changes."""

    dead_letters: DeadLetterSettings = DeadLetterSettings(tolerance="none")
    """The destination of records that cannot be read as rows."""

    tables: dict[Identifier, Table] = Field(min_length=1)
    """The source topics, by the names that the SQL uses."""

    code: str | None = None
    """The folder or the wheel with the code of the `functions`. The path is relative to the job file."""

    functions: dict[Identifier, JobFunction] = Field(default_factory=dict)
    """Python functions, by their names in SQL."""

    views: dict[Identifier, str] = Field(default_factory=dict)
    """Named queries, which sinks and other views may read like tables."""

    sinks: dict[ResourceName, Sink] = Field(min_length=1)
    """The result topics, each with its SQL. A sink can also print its changes, see `to`."""

    _file: Path = PrivateAttr(default=Path("job.yaml"))
    _lines: FileLines = PrivateAttr(default_factory=FileLines)
    _python: Code | None = PrivateAttr(default=None)

    @field_validator("kafka")
    @classmethod
    def _servers(cls, value: Settings | None) -> Settings | None:
        if value is not None and "bootstrap.servers" not in value:
            raise ValueError("`bootstrap.servers` is missing: the addresses of the brokers, such as localhost:9092")
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
                raise ValueError(f"`{one}` and `{other}` must be set together")
        if value is not None and (unknown := value.keys() - {"certificate", "key", "user", "password"}):
            raise ValueError(f"unknown setting {min(unknown)!r}: expected certificate, key, user or password")
        return value

    @field_validator("on_error", mode="before")
    @classmethod
    def _null(cls, value: Any) -> Any:
        """Return the word `null`, which YAML parses as None."""
        return "null" if value is None else value

    @field_validator("registry")
    @classmethod
    def _one_registry(cls, value: Settings | None) -> Settings | None:
        if value is not None and ("url" in value) == ("folder" in value):
            raise ValueError(
                "expected either `url`, a registry with Confluent's API, or `folder`, a folder of .avsc files"
            )
        if value is not None and "folder" in value and len(value) > 1:
            raise ValueError("`folder` allows no other settings of the registry")
        if value is not None:
            client_settings(value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _topics(cls, value: Any) -> Any:
        """Set the topic of a table or a sink to its name if it has no `topic` and the table is not generated."""
        if not isinstance(value, dict):
            return value
        named = dict(value)
        for kind in ("tables", "sinks"):
            if isinstance(entries := value.get(kind), dict):
                named[kind] = {
                    name: {"topic": name, **entry} if isinstance(entry, dict) and has_topic(entry) else entry
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
                f"`memory` is {self.memory >> 20}m, but a job with parallelism {self.parallelism} needs at least "
                f"{needed >> 20}m"
            )
        if self.shards is not None and self.shards & (self.shards - 1):
            raise ValueError(f"`shards` is {self.shards}, but must be a power of two")
        if self.shards is not None and self.shards < self.parallelism:
            raise ValueError(
                f"`parallelism` is {self.parallelism}, but must be at most {self.shards}, the number of `shards`"
            )
        if self.functions and self.code is None:
            raise ValueError("`functions` need `code`: the folder or the wheel that contains them")
        topics: dict[str, str] = {}
        for name, sink in self.topic_sinks.items():
            if sink.topic in topics:
                raise ValueError(f"the sinks {topics[sink.topic]!r} and {name!r} both write to topic {sink.topic!r}")
            topics[sink.topic] = name
        # Without Kafka, as in `rowkind try`, no topic is read or written.
        if self.kafka is not None:
            self._without_loops(topics)
        return self

    def _making_dead_letters(self) -> Iterator[str]:
        """Yield the settings that produce dead letters."""
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
        """Raise ValueError for a topic that is read and written, or written twice. `written` maps topics to sinks."""
        letters = self.dead_letters.topic
        if letters in written:
            raise ValueError(
                f"topic {letters!r} would have both the dead letters and the result of sink {written[letters]!r}, "
                "which readers could not distinguish: set another topic in `dead_letters`"
            )
        for name, table in self.tables.items():
            if table.topic == letters:
                raise ValueError(
                    f"table {name!r} reads topic {letters!r}, which has the dead letters: each would be read and fail "
                    "again. Set another topic in `dead_letters`, or read the letters in another job"
                )
            if table.topic in written:
                raise ValueError(
                    f"table {name!r} reads topic {table.topic!r}, which sink {written[table.topic]!r} writes: the job "
                    "would read its own results. Let both sinks read a view (`views`), or split the job into two jobs"
                )
        for topic in (*written, *(table.topic for table in self.tables.values()), letters or ""):
            if topic.startswith(f"{self.name}.") and (topic.endswith(".progress") or ".filling-" in topic):
                raise ValueError(f"topic {topic!r} is reserved for the job itself: use another topic")

    @property
    def topic_sinks(self) -> dict[str, Sink]:
        """The sinks that write to a topic."""
        return {name: sink for name, sink in self.sinks.items() if sink.to == "topic"}

    @property
    def brokers(self) -> dict[str, str]:
        """The settings of `kafka` for Kafka's clients."""
        return {name: value for name, value in (self.kafka or {}).items() if name != _OUTAGE}

    @property
    def outage(self) -> int | None:
        """How long the job waits for unavailable brokers, in ms; None if indefinitely."""
        written = (self.kafka or {}).get(_OUTAGE)
        return None if written is None else duration.parse(written)

    @property
    def budget(self) -> Budget:
        """The division of the job's memory."""
        return budget(self.memory, self.parallelism)

    def python(self) -> Code | None:
        """Return the code of the job's functions, None if it has none. Raises JobError if the code cannot be read."""
        if not self.functions or self.code is None:
            return None
        try:
            # This reads all files of the code, so it is done only once.
            self._python = self._python or Code.at(self.file.parent / self.code)
        except FunctionError as error:
            raise JobError(str(self.file), [Problem(self.line("code"), "code", str(error))]) from None
        return self._python

    @property
    def file(self) -> Path:
        """The file that the job was read from."""
        return self._file

    def line(self, *path: str | int, sql: str = "", at: int = 0) -> int:
        """Return the line of a field, or of a position in its SQL, as `FileLines.of`; 0 if unknown."""
        return self._lines.of(path, sql, at)

    def check_runnable(self) -> None:
        """Raise JobError if a setting is missing that only a running job needs."""
        wanted = {
            "kafka": (self.kafka, "the brokers, as `{bootstrap.servers: …}`; `rowkind run --dev` starts a broker"),
            "checkpoint": (self.checkpoint, "the folder for offsets and state"),
        }
        avro = [table.needs_registry for table in self.tables.values()]
        if any(avro) or any(sink.format == "avro" for sink in self.topic_sinks.values()):
            wanted["registry"] = self.registry, "the location of schemas, as `{url: …}` or `{folder: …}`"
        missing = [f"{name} is missing: {what}" for name, (value, what) in wanted.items() if value is None]
        if missing:
            raise JobError(str(self._file), [Problem(self.line(), "", text) for text in missing])

    def read_from(self, file: Path, lines: FileLines) -> Job:
        """Set the file and the lines that the job was read from, and return the job."""
        self._file = file
        self._lines = lines
        return self
