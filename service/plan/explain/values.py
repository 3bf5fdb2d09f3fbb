"""Values that describe a plan to programs: the keys of the JSON document, documented where they are declared.

`python -m tests.plan` writes docs/reference/plan-document.md from these declarations. Once a key is released, it does
not change, but new keys may be added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.rank.ranking import RankFunction, Strategy, Ties
from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.physical.source_table import TopicFormat

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
"""The value that marks a key as omitted from the document."""

How = Literal["shuffled", "same stage", "every shard", "unmoved"]
FirstStep = Literal["added up", "ranked"]
Role = Literal["left", "right", "input", "fact"]
StateLayout = Literal[
    "one row per key",
    "unique key",
    "multiset",
    "timed",
    "values",
    "views",
    "top rows",
    "every row",
    "last rows",
    "versions",
    "begun",
    "facts",
]
AdviceCode = Literal[
    "no equal key",
    "not in with nulls",
    "no primary key",
    "no watermark",
    "all values kept",
    "one shard",
    "every row kept",
    "old rows kept",
    "no ttl",
    "no within",
    "shuffle to the sink",
    "sink without key",
]


@cache
def documented(of: Any) -> Mapping[str, Any]:
    """Return a class's documented keys with their types. The documented keys are the `Annotated` fields."""
    hints = get_type_hints(of, include_extras=True)
    return {each.name: hints[each.name] for each in fields(of) if get_origin(hints[each.name]) is Annotated}


def as_json(value: Any) -> Any:
    """Return a value in JSON form. An object contains its documented keys, without those whose value is `ABSENT`."""
    if hasattr(value, "__dataclass_fields__"):
        found = {name: getattr(value, name) for name in documented(value.__class__)}
        return {name: as_json(each) for name, each in found.items() if each is not ABSENT}
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return list(map(as_json, value)) if isinstance(value, tuple | list) else value


@dataclass(frozen=True)
class StepValues:
    """Values that only steps of one kind have."""


NO_VALUES = StepValues()


@dataclass(frozen=True)
class Advice:
    """A piece of advice: a possible saving, or a risk."""

    about: Annotated[str, "the step that the advice concerns"]
    code: Annotated[AdviceCode, "the kind of advice"]
    text: Annotated[str, "the advice in prose"]


@dataclass(frozen=True)
class NamedColumn:
    """A column."""

    name: Annotated[str, "the column's name"]
    type: Annotated[str, "the column's SQL type"]


@dataclass(frozen=True)
class NamedCall:
    """A call."""

    name: Annotated[str, "the column with the call's result"]
    sql: Annotated[str, "the call in SQL"]


@dataclass(frozen=True)
class NumberColumn:
    """A column with the numbers of a rank."""

    name: Annotated[str, "the column's name"]
    function: Annotated[RankFunction, "the function that numbers the rows"]


@dataclass(frozen=True)
class Closes:
    """When a clock evicts rows from state."""

    clock: Annotated[str, "the tables whose watermark decides, or `the clock`, which is the time of the batches"]
    at: Annotated[str, "the time of a row that the watermark or clock must pass"]


@dataclass(frozen=True)
class StateValues:
    """Rows that a step keeps as state."""

    of: Annotated[str, "the table or step from which the rows come"]
    layout: Annotated[
        StateLayout,
        "`unique key`: rows by key and sub_key; `multiset`: equal rows counted, or with a ttl kept "
        "individually; `timed`: in order of time, until their time is reached; `values`: all distinct values of "
        "the calls; `views`: the views of the job's functions; `top rows`: up to the rank's last number; `every "
        "row`, `last rows`: rows of a partition, in order; `versions`: all rows that a key has had; `begun`: all "
        "rows since the first one that may begin a match; `facts`: facts about all rows, on every shard",
    ]
    closes: Annotated[Closes, "the watermark that evicts the rows"] = ABSENT
    sub_key: Annotated[Sequence[str], "the columns that distinguish rows with the same key"] = ABSENT
    calls: Annotated[Sequence[str], "the calls for which the values are kept"] = ABSENT


@dataclass(frozen=True)
class WatermarkValues:
    """The watermark of a table."""

    column: Annotated[str, "the watermark's column or expression"]
    delay_ms: Annotated[int, "milliseconds that the watermark is behind the latest time, if the same for all rows"]
    idle_ms: Annotated[int, "milliseconds after which a partition without rows no longer holds back the watermark"]
    late: Annotated[Literal["drop", "dead_letter"], "what happens to late rows"]
    allowed_lateness_ms: Annotated[int, "milliseconds that state is kept longer and late rows are accepted"]


@dataclass(frozen=True)
class SinkValues(StepValues):
    """A sink."""

    topic: Annotated[str, "the sink's topic, if it has one"]
    mode: Annotated[ChangelogMode, "the kinds of changes in the topic"]
    key: Annotated[Sequence[str], "the columns of the sink's key"]
    delivery: Annotated[Literal["exactly_once", "at_least_once"], "whether a change may be in the topic more than once"]
    columns: Annotated[Sequence[NamedColumn], "the columns that are written"]
    fixes: Annotated[
        Sequence[str],
        "the columns by which rows share a shard, if the key determines these columns but does not contain them",
    ] = ABSENT
    to: Annotated[
        Literal["print", "blackhole"], "where the changes of a sink without a topic go: to the log, or nowhere"
    ] = ABSENT


@dataclass(frozen=True)
class ScanValues(StepValues):
    """A table that is read."""

    table: Annotated[str, "the table's name"]
    topic: Annotated[str, "the table's topic"]
    alias: Annotated[str, "the table's alias in the query"]
    table_mode: Annotated[ChangelogMode, "the table's mode"]
    primary_key: Annotated[Sequence[str], "the table's primary key"]
    exact: Annotated[bool, "whether the producer guarantees an exact changelog"]


@dataclass(frozen=True)
class ScanDetails(StepValues):
    """Additional details of a table, at the table's first scan in a plan."""

    reads: Annotated[Sequence[NamedColumn], "the columns that are read"]
    values: Annotated[TopicFormat, "the format of the topic's values, if not framed Avro"] = ABSENT
    debezium: Annotated[bool, "whether the topic's values are Debezium envelopes, if `values` is set"] = ABSENT
    watermark: Annotated[WatermarkValues, "the table's watermark"] = ABSENT


@dataclass(frozen=True)
class JoinValues(StepValues):
    """A join, semi join, anti join or mark join."""

    join: Annotated[PhysicalJoinKind, "the kind of join"]
    on: Annotated[Sequence[str], "the equal keys"]


@dataclass(frozen=True)
class JoinDetails(StepValues):
    """Additional details of a join."""

    condition: Annotated[str, "the condition on matches in addition to the keys"] = ABSENT
    remade: Annotated[Sequence[str], "the inputs whose rows are recomputed from the state of the step below"] = ABSENT
    reason: Annotated[str, "why the join was moved from its position in the query, in prose"] = ABSENT
    spreadable: Annotated[Sequence[str], "the inputs whose hot keys the hint SKEW can spread"] = ABSENT


@dataclass(frozen=True)
class LookupValues(StepValues):
    """An as-of join or a lookup."""

    join: Annotated[Literal["left", "inner"], "whether a left row without a match is in the result"]
    on: Annotated[Sequence[str], "the equal keys, and the comparison of times"]
    versions: Annotated[bool, "whether the right side is a table with a key, whose rows are versions"]


@dataclass(frozen=True)
class AggregateValues(StepValues):
    """An aggregate."""

    group_by: Annotated[Sequence[str], "the group columns"]
    calls: Annotated[Sequence[NamedCall], "the calls; empty for DISTINCT"]


@dataclass(frozen=True)
class FactValues(StepValues):
    """An aggregate over the right side of a NOT IN."""

    fact: Annotated[Literal["rows", "nulls"], "whether the step looks for rows or for NULLs"]


@dataclass(frozen=True)
class RankValues(StepValues):
    """A rank or a deduplication."""

    function: Annotated[RankFunction, "the function that ranks the rows"]
    first: Annotated[int, "the first number that is kept"]
    last: Annotated[int | None, "the last number that is kept, null if there is no upper bound"]
    ties: Annotated[Ties, "which of several tied rows comes first, by order of arrival"]
    number: Annotated[str | None, "the column with the function's number; null if no step reads it"]
    numbers: Annotated[Sequence[NumberColumn], "all columns with numbers, if other functions number the rows too"]
    partition_by: Annotated[Sequence[str], "the partition columns"]
    order_by: Annotated[Sequence[str], "the order; `arrival` for the order of arrival"]


@dataclass(frozen=True)
class RankDetails(StepValues):
    """Additional details of a rank."""

    condition: Annotated[str, "the condition on rows within the range"]
    bound: Annotated[
        str, "the column that limits how far a partition is read; it is the same in all rows of a partition"
    ]
    settled: Annotated[int, "the number above which rank numbers are not distinguished"]
    strategy: Annotated[Strategy, "how rows are kept"]
    reason: Annotated[str, "why that strategy was chosen, in prose"]
    spreadable: Annotated[Sequence[str], "the inputs whose hot keys the hint SKEW can spread"] = ABSENT


@dataclass(frozen=True)
class SessionValues(StepValues):
    """A session window."""

    time: Annotated[str, "the column with a row's time"]
    gap: Annotated[str, "the largest gap between two consecutive rows of a session"]
    partition_by: Annotated[Sequence[str], "the partition columns"]


@dataclass(frozen=True)
class OverValues(StepValues):
    """Window functions with ORDER BY."""

    partition_by: Annotated[Sequence[str], "the partition columns"]
    order_by: Annotated[Sequence[str], "the order"]
    calls: Annotated[Sequence[NamedCall], "the calls"]


@dataclass(frozen=True)
class MatchValues(StepValues):
    """A row pattern."""

    pattern: Annotated[str, "the pattern as the user wrote it"]
    all_rows: Annotated[bool, "whether all rows of each match are emitted, or one row"]
    within: Annotated[str, "the maximum length of a match"]
    partition_by: Annotated[Sequence[str], "the partition columns"]
    order_by: Annotated[Sequence[str], "the order"]


@dataclass(frozen=True)
class MatchDetails(StepValues):
    """Additional details of a row pattern."""

    measures: Annotated[Sequence[str], "the calls in its measures"]
    define: Annotated[Mapping[str, str | None], "the condition of each variable; null if it is always true"]
    skip: Annotated[str, "where the search continues after a match"]


@dataclass(frozen=True)
class NormalizeDetails(StepValues):
    """An input that is made exact."""

    reason: Annotated[str, "why the input must be made exact, in prose"]


@dataclass(frozen=True)
class TemporalFilterValues(StepValues):
    """A temporal filter."""

    clock: Annotated[str, "the tables whose watermark decides, or `the clock`, which is the time of the batches"]
    begins: Annotated[str, "the time from which a row is in the result"] = ABSENT
    ends: Annotated[str, "the time until which a row is in the result"] = ABSENT
    order_by: Annotated[Sequence[str], "the order in which rows are emitted"] = ABSENT


@dataclass(frozen=True)
class ExpandValues:
    """An expansion of one row into several."""

    elements_of: Annotated[str, "the array or map whose elements become rows"]
    outer: Annotated[bool, "whether a row without elements is kept, with NULLs"]
    filter: Annotated[str, "the condition on the rows that are expanded"] = ABSENT
    elements_where: Annotated[
        str,
        "the condition of a LEFT JOIN on elements; elements that do not satisfy it are ignored",
    ] = ABSENT


@dataclass(frozen=True)
class CalcValues(StepValues):
    """How a step transforms the rows that it emits."""

    expands: Annotated[
        Sequence[ExpandValues],
        "the expansions of one row into several, applied in this order before the filter",
    ] = ABSENT
    filter: Annotated[str, "the condition on the rows that the step emits"] = ABSENT
    filter_deletes: Annotated[bool, "true if a row that fails the filter becomes a delete of its key"] = ABSENT
    drops_null_keys: Annotated[
        bool,
        "true if rows with a NULL in the next step's key are dropped, because they match nothing",
    ] = ABSENT
    digested: Annotated[
        bool,
        "true if the rows of a scan carry a digest of all columns, which distinguishes them",
    ] = ABSENT
    computes: Annotated[Mapping[str, str], "the columns that are computed, each with its expression"] = ABSENT
    functions: Annotated[
        Mapping[str, str],
        "the job functions that are called, and where each is defined",
    ] = ABSENT


@dataclass(frozen=True)
class OutcomeValues(StepValues):
    """The output of a step."""

    columns: Annotated[Sequence[NamedColumn], "the step's columns"]
    mode: Annotated[ChangelogMode, "the kinds of changes"]
    needs_old_rows: Annotated[bool, "whether a step downstream needs the -U of updates"]
    refreshes: Annotated[
        bool,
        "whether the step emits TTL refreshes, because a step downstream has a TTL",
    ]
    unique_keys: Annotated[Sequence[Sequence[str]], "sets of columns that each identify at most one row"]
    upsert_key: Annotated[Sequence[str], "the columns by which updates stay in order"] = ABSENT
    partition_key: Annotated[
        Sequence[str],
        "rows with equal values in these columns share a shard; empty for scans and for a single shard",
    ] = ABSENT
