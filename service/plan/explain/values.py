"""What a plan says to programs: the keys of the JSON document, each documented where it is declared.

`python -m tests.plan` writes docs/plan-document.md from these declarations. A key stays as it is once it is released;
others may be added.
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
"""The value of a key that is left out."""

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
    """The keys of a class, with their documented types: its fields that are `Annotated`."""
    hints = get_type_hints(of, include_extras=True)
    return {each.name: hints[each.name] for each in fields(of) if get_origin(hints[each.name]) is Annotated}


def as_json(value: Any) -> Any:
    """A value as JSON has it: objects of the documented keys, without those that are left out."""
    if hasattr(value, "__dataclass_fields__"):
        found = {name: getattr(value, name) for name in documented(value.__class__)}
        return {name: as_json(each) for name, each in found.items() if each is not ABSENT}
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return list(map(as_json, value)) if isinstance(value, tuple | list) else value


@dataclass(frozen=True)
class StepValues:
    """What only steps of one kind have."""


NO_VALUES = StepValues()


@dataclass(frozen=True)
class Advice:
    """What could be cheaper or is to be watched."""

    about: Annotated[str, "the step that it concerns"]
    code: Annotated[AdviceCode, "which advice it is"]
    text: Annotated[str, "what to know and what to do, for people"]


@dataclass(frozen=True)
class NamedColumn:
    """A column."""

    name: Annotated[str, "its name"]
    type: Annotated[str, "its SQL type"]


@dataclass(frozen=True)
class NamedCall:
    """A call."""

    name: Annotated[str, "the column with its result"]
    sql: Annotated[str, "the call in SQL"]


@dataclass(frozen=True)
class NumberColumn:
    """A column with numbers of a rank."""

    name: Annotated[str, "its name"]
    function: Annotated[RankFunction, "the function that numbers the rows"]


@dataclass(frozen=True)
class Closes:
    """When rows are dropped from state because time has passed them."""

    clock: Annotated[str, "the tables whose watermark it is, or `the clock`, that of the batches"]
    at: Annotated[str, "the time of a row that has to be passed"]


@dataclass(frozen=True)
class StateValues:
    """Rows that a step keeps."""

    of: Annotated[str, "the table or the step whose rows these are"]
    layout: Annotated[
        StateLayout,
        "`unique key`: rows by key and sub_key; `multiset`: equal rows counted, or with a ttl one by one; "
        "`timed`: in the order of their times, until one of these is reached; `values`: all different ones of "
        "its calls; `views`: those of functions of the job; `top rows`: from 1 to the rank's last; `every "
        "row`, `last rows`: of a partition in order; `versions`: all rows that a key has had; `begun`: from "
        "the first row on that may begin a match; `facts`: about all rows, on every shard",
    ]
    closes: Annotated[Closes, "the watermark that drops its rows"] = ABSENT
    sub_key: Annotated[Sequence[str], "what rows of one key differ in"] = ABSENT
    calls: Annotated[Sequence[str], "the calls that the values are kept for"] = ABSENT


@dataclass(frozen=True)
class WatermarkValues:
    """The watermark of a table."""

    column: Annotated[str, "the column that it is of, or the expression"]
    delay_ms: Annotated[int, "how far it is behind the latest time, where that is the same for all rows"]
    idle_ms: Annotated[int, "for how long a partition without rows holds it back"]
    late: Annotated[Literal["drop", "dead_letter"], "what becomes of rows that come too late"]
    allowed_lateness_ms: Annotated[int, "for how much longer state is kept, and late rows are taken"]


@dataclass(frozen=True)
class SinkValues(StepValues):
    """A sink."""

    topic: Annotated[str, "its topic"]
    mode: Annotated[ChangelogMode, "the kinds of changes in it"]
    key: Annotated[Sequence[str], "the columns of its key"]
    delivery: Annotated[Literal["exactly_once", "at_least_once"], "how often a change may be in the topic"]
    columns: Annotated[Sequence[NamedColumn], "the columns that it writes"]
    fixes: Annotated[
        Sequence[str],
        "what its rows share a shard by, where its key does not name that but fixes it for good",
    ] = ABSENT


@dataclass(frozen=True)
class ScanValues(StepValues):
    """A table that is read."""

    table: Annotated[str, "the table"]
    topic: Annotated[str, "its topic"]
    alias: Annotated[str, "what the query calls the table"]
    table_mode: Annotated[ChangelogMode, "the table's mode"]
    primary_key: Annotated[Sequence[str], "the table's primary key"]
    exact: Annotated[bool, "whether the producer promises an exact changelog"]


@dataclass(frozen=True)
class ScanDetails(StepValues):
    """A table that is read for the first time in a plan."""

    reads: Annotated[Sequence[NamedColumn], "the columns that are read"]
    values: Annotated[TopicFormat, "how the topic's values are written, where that is not framed Avro"] = ABSENT
    debezium: Annotated[bool, "whether values are Debezium's envelopes, as above"] = ABSENT
    watermark: Annotated[WatermarkValues, "that of its table"] = ABSENT


@dataclass(frozen=True)
class JoinValues(StepValues):
    """A join, semi join, anti join or mark join."""

    join: Annotated[PhysicalJoinKind, "the kind of join"]
    on: Annotated[Sequence[str], "its equal keys"]


@dataclass(frozen=True)
class JoinDetails(StepValues):
    """What else there is to know of a join."""

    condition: Annotated[str, "what matches must fulfil besides"] = ABSENT
    remade: Annotated[Sequence[str], "the inputs whose rows it recomputes from the state of the step below"] = ABSENT
    reason: Annotated[str, "why it is not where it is written, for people"] = ABSENT
    spreadable: Annotated[Sequence[str], "the inputs whose rows of one key the hint SKEW can spread"] = ABSENT


@dataclass(frozen=True)
class LookupValues(StepValues):
    """An as-of join or a lookup."""

    join: Annotated[Literal["left", "inner"], "whether a left row without a match is in the result"]
    on: Annotated[Sequence[str], "its equal keys, and how times compare"]
    versions: Annotated[bool, "whether its right side is a table with a key, whose rows count one after the other"]


@dataclass(frozen=True)
class AggregateValues(StepValues):
    """An aggregate."""

    group_by: Annotated[Sequence[str], "its group columns"]
    calls: Annotated[Sequence[NamedCall], "its calls; none for DISTINCT"]


@dataclass(frozen=True)
class FactValues(StepValues):
    """An aggregate that a NOT IN needs."""

    fact: Annotated[Literal["rows", "nulls"], "what is asked of all rows"]


@dataclass(frozen=True)
class RankValues(StepValues):
    """A rank or a deduplication."""

    function: Annotated[RankFunction, "the function that ranks the rows"]
    first: Annotated[int, "the first number that is kept"]
    last: Annotated[int | None, "the last number that is kept, null if there is no upper bound"]
    ties: Annotated[Ties, "which of equal rows counts first, by arrival"]
    number: Annotated[str | None, "the column with the number by its function, null if no step reads it"]
    numbers: Annotated[Sequence[NumberColumn], "its columns with numbers, if some are by other functions"]
    partition_by: Annotated[Sequence[str], "its partition"]
    order_by: Annotated[Sequence[str], "its order; `arrival` for that of arrival"]


@dataclass(frozen=True)
class RankDetails(StepValues):
    """What else there is to know of a rank."""

    condition: Annotated[str, "what rows in its range must fulfil besides"]
    bound: Annotated[str, "the column up to which a partition is read, the same in all its rows"]
    settled: Annotated[int, "the number above which numbers are not distinguished"]
    strategy: Annotated[Strategy, "how rows are kept"]
    reason: Annotated[str, "why that strategy was chosen, for people"]
    spreadable: Annotated[Sequence[str], "the inputs whose rows of one key the hint SKEW can spread"] = ABSENT


@dataclass(frozen=True)
class SessionValues(StepValues):
    """Sessions."""

    time: Annotated[str, "the column with the time of a row"]
    gap: Annotated[str, "how far apart two rows of a session may be"]
    partition_by: Annotated[Sequence[str], "the partition"]


@dataclass(frozen=True)
class OverValues(StepValues):
    """Window functions with an order."""

    partition_by: Annotated[Sequence[str], "the partition"]
    order_by: Annotated[Sequence[str], "the order"]
    calls: Annotated[Sequence[NamedCall], "the calls"]


@dataclass(frozen=True)
class MatchValues(StepValues):
    """A row pattern."""

    pattern: Annotated[str, "the pattern, as written"]
    all_rows: Annotated[bool, "whether all rows of each match are emitted, and not one"]
    within: Annotated[str, "in what time a match must be"]
    partition_by: Annotated[Sequence[str], "the partition"]
    order_by: Annotated[Sequence[str], "the order"]


@dataclass(frozen=True)
class MatchDetails(StepValues):
    """What else there is to know of a row pattern."""

    measures: Annotated[Sequence[str], "what its measures ask of it"]
    define: Annotated[Mapping[str, str | None], "the condition of each variable, null for one that is always true"]
    skip: Annotated[str, "where the search goes on after a match"]


@dataclass(frozen=True)
class NormalizeDetails(StepValues):
    """An input that is made exact."""

    reason: Annotated[str, "why that is needed, for people"]


@dataclass(frozen=True)
class TemporalFilterValues(StepValues):
    """Rows that time lets pass."""

    clock: Annotated[str, "the tables whose watermark it goes by, or `the clock`, that of the batches"]
    begins: Annotated[str, "the time of a row from which on it is in the result"] = ABSENT
    ends: Annotated[str, "the time of a row until which it is in the result"] = ABSENT
    order_by: Annotated[Sequence[str], "the order in which rows are emitted"] = ABSENT


@dataclass(frozen=True)
class ExpandValues:
    """What makes several rows of one."""

    elements_of: Annotated[str, "what has the elements, for each of which there is a row"]
    outer: Annotated[bool, "whether a row without elements stays, with NULLs"]
    filter: Annotated[str, "the condition on the rows that are expanded"] = ABSENT
    elements_where: Annotated[
        str,
        "the condition of LEFT JOIN on elements; others count as if they were not there",
    ] = ABSENT


@dataclass(frozen=True)
class CalcValues(StepValues):
    """What happens to rows at the exit of a step."""

    expands: Annotated[
        Sequence[ExpandValues],
        "what makes several rows of one, one after the other, before the filter",
    ] = ABSENT
    filter: Annotated[str, "the condition on the rows that the step emits"] = ABSENT
    filter_deletes: Annotated[bool, "true if a row that fails the filter becomes a delete of its key"] = ABSENT
    drops_null_keys: Annotated[
        bool,
        "true if rows with a NULL in the next step's key are dropped: they match nothing",
    ] = ABSENT
    digested: Annotated[
        bool,
        "true if the rows of a scan carry a digest of all columns, which distinguishes them",
    ] = ABSENT
    computes: Annotated[Mapping[str, str], "the columns that are computed, each with its expression"] = ABSENT
    functions: Annotated[
        Mapping[str, str],
        "the functions of the job that are called, and where each is defined",
    ] = ABSENT


@dataclass(frozen=True)
class OutcomeValues(StepValues):
    """What a step emits."""

    columns: Annotated[Sequence[NamedColumn], "its columns"]
    mode: Annotated[ChangelogMode, "the kinds of changes"]
    needs_old_rows: Annotated[bool, "whether a step downstream needs the -U of updates"]
    refreshes: Annotated[
        bool,
        "whether it passes on which rows were written again, because a step downstream has a TTL",
    ]
    unique_keys: Annotated[Sequence[Sequence[str]], "sets of columns that identify at most one row"]
    upsert_key: Annotated[Sequence[str], "the columns by which updates stay in order"] = ABSENT
    partition_key: Annotated[
        Sequence[str],
        "what rows that share a shard are equal in; none for scans, and for one shard",
    ] = ABSENT
