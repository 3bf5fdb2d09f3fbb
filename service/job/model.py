"""The model of a job file: what may stand in it and what it means when left out.

Reading never touches the network: which columns a table has when neither `columns` nor `schema` says so is asked of
the registry when the job is planned (`service.job.columns`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.budget import Budget, budget, least
from rowkind.service.job import duration, size
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.substitution import Settings
from rowkind.service.row_kind import PRESETS, RowKindHeader, spellings
from rowkind.service.source_table import Start

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]
Policy = Literal["insert", "dead_letter", "fail"]


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _settings(value: Any, check: ValidatorFunctionWrapHandler) -> Settings:
    if isinstance(value, dict):
        value = {str(name): str(entry).lower() if isinstance(entry, bool) else entry for name, entry in value.items()}
    checked = check(value)
    # What pydantic gives back is plain text: secrets have to be told from it again.
    return Settings({name: value[name] if isinstance(value[name], str) else text for name, text in checked.items()})


def _written(parse: Callable[[str], int]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


ColumnNames = Annotated[tuple[str, ...], BeforeValidator(_one_or_more)]
Duration = Annotated[int, _written(duration.parse), Field(gt=0)]
"""Milliseconds, written as a length of time."""

Size = Annotated[int, _written(size.parse)]
"""Bytes, written as an amount of memory."""

SettingsField = Annotated[dict[str, str], WrapValidator(_settings)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class RowKindSettings(_Part):
    """How a topic tells the row kind: a header, its spelling (`preset` or `values`), and what if it is not there."""

    header: str = "op"
    preset: str = "rowkind"
    values: dict[str, str] | None = None
    missing: Policy = "dead_letter"
    unknown: Policy = "dead_letter"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"preset": value} if isinstance(value, str) else value

    @field_validator("preset")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"{value!r} is not a spelling of row kinds: expected {_either(sorted(PRESETS))}")
        return value

    @field_validator("values")
    @classmethod
    def _complete(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            for word, kind in value.items():
                if kind not in _SYMBOLS:
                    raise ValueError(f"{word!r} stands for {kind!r}: expected {_either(_SYMBOLS)}")
            spellings({word.encode(): _SYMBOLS[kind] for word, kind in value.items()})
        return value

    def physical(self) -> RowKindHeader:
        """The header as the plan has it."""
        values = PRESETS[self.preset]
        if self.values is not None:
            values = {word.encode(): _SYMBOLS[kind] for word, kind in self.values.items()}
        return RowKindHeader(self.header, values, self.missing, self.unknown)


_SYMBOLS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


class From(_Part):
    """Where a topic is read from when there is no checkpoint."""

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp: datetime | None = None
    offsets: dict[int, int] = Field(default_factory=dict)
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "restart"] = "fail"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"at": value}
        if isinstance(value, dict) and "at" not in value:
            for given in ("timestamp", "offsets"):
                if given in value:
                    return {**value, "at": given}
        return value

    @model_validator(mode="after")
    def _whole(self) -> From:
        if (self.at == "timestamp") != (self.timestamp is not None):
            raise ValueError("`at: timestamp` and `timestamp` belong together")
        if (self.at == "offsets") != bool(self.offsets):
            raise ValueError("`at: offsets` and `offsets` belong together")
        return self

    def physical(self) -> Start:
        """The start as the plan has it; a time without a zone is UTC."""
        moment = self.timestamp
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = None if moment is None else round(moment.timestamp() * 1000)
        return Start(self.at, milliseconds, dict(self.offsets), self.on_lost, self.on_recreated)


class Table(_Part):
    """A source topic. Without `columns` and `schema` its columns are the registry's, under `<topic>-value`.

    `exact` is a promise of the producer's: every update comes as -U and +U, and every -U and -D takes back a row that
    was sent. Without it the job keeps the rows of the table wherever somebody depends on that.
    """

    topic: TopicName = ""
    mode: ChangelogMode
    columns: dict[str, str] | None = None
    schema_file: str | None = Field(default=None, alias="schema")
    primary_key: ColumnNames = ()
    exact: bool = False
    ttl: Duration | None = None
    row_kind: RowKindSettings = RowKindSettings()
    start: From = From()

    @field_validator("mode", mode="before")
    @classmethod
    def _mode(cls, value: Any) -> Any:
        if value == "debezium":
            raise ValueError(
                "debezium envelopes are not supported yet: write the rows with a row kind header "
                "(mode: retract, row_kind: debezium reads c, r, u and d from it)"
            )
        return value

    @field_validator("columns")
    @classmethod
    def _typed(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            try:
                Record.of(value)
            except SchemaError as error:
                raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _whole(self) -> Table:
        if self.columns is not None and self.schema_file is not None:
            raise ValueError("`columns` and `schema` say the same thing: keep one of them")
        if self.mode == "upsert" and not self.primary_key:
            raise ValueError("an upsert table needs `primary_key`: the columns that a row replaces another one by")
        if self.exact and self.mode != "retract":
            raise ValueError(f"`exact` is said of a retract table; this one is {self.mode}")
        for column in self.primary_key:
            if self.columns is not None and column not in self.columns:
                raise ValueError(
                    f"the primary key names {column!r}, which is not among the columns {', '.join(self.columns)}"
                )
        return self


class Sink(_Part):
    """A result topic, and the query whose result it keeps.

    `on_conflict` says which row stands under a key that several rows of the result share: the first or the last one to
    arrive, or none, where such a query is refused. An `isolated` sink shares nothing with the others: they wait neither
    for it nor it for them, and it reads its topics by itself.
    """

    topic: TopicName = ""
    mode: ChangelogMode
    key: ColumnNames = ()
    sql: str
    on_conflict: Literal["refuse", "first", "last"] = "refuse"
    row_kind: RowKindSettings = RowKindSettings()
    partitions: int | None = Field(default=None, gt=0)
    replication: int | None = Field(default=None, gt=0)
    create: bool = True
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    isolated: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Sink:
        if self.mode == "upsert" and not self.key:
            raise ValueError("an upsert sink needs `key`: the columns that identify a row of the result")
        if self.on_conflict != "refuse" and self.mode != "upsert":
            raise ValueError(f"`on_conflict` is for an upsert sink; this one is {self.mode}")
        if self.delivery == "at_least_once" and self.mode != "upsert":
            raise ValueError(
                f"`delivery: at_least_once` may write changes twice, which only an upsert sink bears; this one is "
                f"{self.mode}"
            )
        return self


class BatchSettings(_Part):
    """How much one micro-batch takes."""

    max_rows: int = Field(default=200_000, gt=0)


class DeadLetterSettings(_Part):
    """Where records go that are no rows. Without a topic the first of them stops the job."""

    topic: TopicName | None = None
    tolerance: Literal["none", "all"] = "all"

    @model_validator(mode="after")
    def _whole(self) -> DeadLetterSettings:
        if self.tolerance == "all" and self.topic is None:
            raise ValueError("`tolerance: all` needs a `topic`: nothing is thrown away unseen")
        return self


_OUTAGE = "outage"
"""The one entry of `kafka` that is ours and not librdkafka's."""


class Job(_Part):
    """One job file. `checkpoint` and `kafka` may be missing for `check`, `explain` and `try`.

    `atomic` says that what a batch changes in all topics is one transaction: whoever reads several of them, committed
    records only, never sees a part of a batch. `memory` is what all processes of the job take together at most.
    `parallelism` is in how many tasks its shards are worked on; how many `shards` there are, state fixes for good.
    """

    name: ResourceName = Field(alias="job")
    kafka: SettingsField | None = None
    registry: SettingsField | None = None
    checkpoint: str | None = None
    ttl: Duration | None = None
    parallelism: int = Field(default=2, gt=0, le=1024)
    shards: int | None = Field(default=None, gt=0, le=1024)
    memory: Size | None = None
    batch: BatchSettings = BatchSettings()
    unmatched: Literal["ignore", "dead_letter", "fail"] = "ignore"
    atomic: bool = False
    dead_letters: DeadLetterSettings = DeadLetterSettings(tolerance="none")
    tables: dict[Identifier, Table] = Field(min_length=1)
    views: dict[Identifier, str] = Field(default_factory=dict)
    sinks: dict[ResourceName, Sink] = Field(min_length=1)

    _file: Path = PrivateAttr(default=Path("job.yaml"))
    _lines: dict[tuple[str | int, ...], int] = PrivateAttr(default_factory=dict)

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

    @field_validator("registry")
    @classmethod
    def _one_registry(cls, value: Settings | None) -> Settings | None:
        if value is not None and ("url" in value) == ("folder" in value):
            raise ValueError(
                "expected either `url`, a registry with Confluent's API, or `folder`, a folder of .avsc files"
            )
        if value is not None and "folder" in value and len(value) > 1:
            raise ValueError("a folder of schemas takes no further settings")
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
        if self.unmatched == "dead_letter" and self.dead_letters.topic is None:
            raise ValueError("`unmatched: dead_letter` needs `dead_letters: {topic: …}`")
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
        topics: dict[str, str] = {}
        for name, sink in self.sinks.items():
            if sink.topic in topics:
                raise ValueError(f"the sinks {topics[sink.topic]!r} and {name!r} both write to topic {sink.topic!r}")
            topics[sink.topic] = name
        return self

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
            "registry": (self.registry, "where schemas are, as `{url: …}` or `{folder: …}`"),
            "checkpoint": (self.checkpoint, "the folder that keeps offsets and state"),
        }
        missing = [f"{name} is missing: {what}" for name, (value, what) in wanted.items() if value is None]
        if missing:
            raise JobError(str(self._file), [Problem(self.line(), "", text) for text in missing])

    def read_from(self, file: Path, lines: dict[tuple[str | int, ...], int]) -> Job:
        """This job, knowing where it was read from."""
        self._file = file
        self._lines = lines
        return self


def _either(words: Any) -> str:
    *others, last = cast("list[str]", list(words))
    return f"{', '.join(others)} or {last}" if others else last
