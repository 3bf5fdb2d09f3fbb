"""The physical plan: what runs, as plain frozen values that pickle.

A plan is a tree with a `PhysicalSink` at its root. Each edge carries `Rows` out of a node and `Changes` into the next
one; the calc of the lower node makes the one out of the other. Spark (`service.run.streaming`) and the in-memory engine
(`service.run.memory`) both execute this tree and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, CHILD, COLUMN, NO_FACT, RESULTS, fact
from rowkind.operators.ranking import RankFunction, Ranking
from rowkind.service.aggregation import Aggregation
from rowkind.service.calc import Calc, OnError
from rowkind.service.clocks import Clock, Closing, ColumnTime, TimeBounds
from rowkind.service.expression import Expression
from rowkind.service.join_kinds import PhysicalJoinKind
from rowkind.service.matching import Matching
from rowkind.service.over_call import WindowCall
from rowkind.service.row_kind import DEFAULT_HEADER, RowKindHeader
from rowkind.service.source_table import SourceTable
from rowkind.service.time_match import TimeMatch

RankStrategy = Literal["append", "improving", "retract"]
InputLayout = Literal["one row per key", "unique key", "multiset"]


@dataclass(frozen=True)
class Traits:
    """What the plan knows of the rows that leave a node's calc; for explain and for tests, nothing runs by it.

    - `mode`: which kinds of changes there are; `unique_keys`: columns that identify at most one live row each.
    - `upsert_key`: the key by which updates stay in order. `partition_key`: what equal rows share a shard by; empty for
      a scan, whose rows come as the topic's partitions have them.
    - `needs_before`: whether somebody further down must see the -U of updates.
    """

    mode: ChangelogMode = "retract"
    unique_keys: tuple[tuple[str, ...], ...] = ()
    upsert_key: tuple[str, ...] = ()
    partition_key: tuple[str, ...] = ()
    needs_before: bool = True


@dataclass(frozen=True)
class PhysicalScan:
    """One table read from its topic, for one consumer; `calc.input` is the part of it that somebody reads.

    `alias` is what the query calls the table.
    """

    node: str = field(metadata=ASIDE)
    source: SourceTable
    calc: Calc = field(metadata=ASIDE)
    alias: str = field(default="", metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalInput:
    """What the plan chose for one input of an operator.

    `by_seq` says that changes of one key are to be taken in arrival order (a source with a primary key, where a bare
    `+U` replaces, or one that may take back what was never sent); otherwise the batch is an exact multiset of signed
    rows. `exact` says that retractions are of rows as they were sent, so that one which meets another row under its key
    has been overtaken by the +U. `closing` is when its rows are let go of because of their own time. `remade`: they are
    not kept, but made anew of what the join that feeds the input keeps.
    """

    layout: InputLayout
    ttl_ms: int | None
    by_seq: bool
    exact: bool = False
    closing: Closing | None = field(default=None, repr=False)
    remade: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class PhysicalJoin:
    """A stateful equi-join (or a cross join, with no key) with an optional further condition.

    `condition` reads the columns of `left.calc.output` and `right.calc.output` side by side. `schema` is the record of
    the rows that the join emits and its calc takes in: the two concatenated, or the left one alone for the kinds
    that emit left rows only, with the answer behind it for "mark" and "in". `facts` feed side 2 of a NOT IN
    or an IN. `on_error` says what becomes of pairs on which the condition fails: unless the query does, they are no
    match. `near`: what the condition says of how far apart the times of a pair may lie. `placed`: why it is not where
    it is written.

    `unmarked`, here and elsewhere: columns of tables, `sales.at`, on which a watermark would let go of rows.

    `fused`, here and elsewhere: the node runs in its consumer's stage, because its rows are partitioned as the consumer
    wants them; nothing is shuffled between the two.
    """

    node: str = field(metadata=ASIDE)
    kind: PhysicalJoinKind = field(metadata=fact("kind"))
    left: PhysicalNode = field(metadata=CHILD)
    right: PhysicalNode = field(metadata=CHILD)
    left_input: PhysicalInput = field(metadata=fact("left"))
    right_input: PhysicalInput = field(metadata=fact("right"))
    schema: Record = field(metadata=NO_FACT)
    condition: Expression | None = field(metadata=fact("condition", empty="none"))
    calc: Calc = field(metadata=ASIDE)
    facts: tuple[PhysicalNode, ...] = field(default=(), metadata=CHILD)
    on_error: OnError = "fail"
    near: TimeBounds | None = field(default=None, metadata=NO_FACT)
    placed: str = field(default="", metadata=ASIDE)
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalAggregate:
    """GROUP BY with its calls, or DISTINCT; its calc takes rows of `aggregation.output`."""

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    aggregation: Aggregation
    calc: Calc = field(metadata=ASIDE)
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class RankCondition:
    """What rows in the range of a rank must fulfil besides: a condition on them and on some of their numbers.

    `numbers` is the record of these, and `functions` say what each is. `bound` is a column that no number which is let
    through exceeds, and that is the same in all rows that a partition ever has; None where there is none. `on_error`
    says what becomes of a row on which the condition fails: unless the query does, it is not in the result.
    """

    expression: Expression = field(metadata=fact("condition"))
    numbers: Record = field(metadata=NO_FACT)
    functions: tuple[RankFunction, ...] = field(metadata=NO_FACT)
    bound: str | None = field(default=None, metadata={**COLUMN, **NO_FACT})
    on_error: OnError = "fail"


@dataclass(frozen=True)
class PhysicalRank:
    """The rows of a ranking.

    The key of the changes that come in is the partition, their sub-key the order. `schema` is the record of the rows
    that come out: `input.calc.output`, with the columns `numbers` behind it, which are by these functions. `identity`
    are columns of the input's record. Without an upper bound, nobody tells numbers above `settled` apart. `partition`
    and `order` are what the user wrote; `reason` says why the strategy was chosen.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    state: PhysicalInput = field(metadata=fact("state"))
    ranking: Ranking = field(metadata=fact("rows"))
    numbers: Mapping[str, RankFunction] = field(metadata={**RESULTS, **fact("number")})
    strategy: RankStrategy = field(metadata=NO_FACT)
    reason: str = field(metadata=ASIDE)
    identity: tuple[str, ...] = field(metadata={**COLUMN, **fact("identity", empty="none")})
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    condition: RankCondition | None = None
    settled: int | None = field(default=None, metadata=fact("settled"))
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalSession:
    """Rows with the beginning of their session, the last column of `schema`; where it `ends`, its end behind that.

    The key of the changes that come in is the partition. `time` is a column of the input's record; `gap` is in
    microseconds. `partition` and `order` are what the user wrote.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    state: PhysicalInput = field(metadata=fact("state"))
    time: str = field(metadata={**COLUMN, **fact("time")})
    gap: int = field(metadata=fact("gap"))
    ends: bool = field(metadata=fact("ends", "of each row"))
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: str = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class OrderMeasure:
    """The column by whose values rows are ordered, where distances between them count, and how it sorts."""

    column: str = field(metadata=COLUMN)
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PhysicalOver:
    """Rows with the results of window functions, the last columns of `schema`.

    The key of the changes that come in is the partition, their sub-key the order. `partition` and `order` are what the
    user wrote. Where rows come in the order of their time and never go, `ahead` is how long after it their results may
    change, in microseconds; else None.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    state: PhysicalInput = field(metadata=fact("state"))
    calls: tuple[WindowCall, ...] = field(metadata=fact("calls", empty="none"))
    measure: OrderMeasure | None = field(metadata=NO_FACT)
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata={**ASIDE, **fact("order", empty="none")})
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    ahead: int | None = field(default=None, metadata=fact("keeps"))
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)

    @property
    def passes(self) -> bool:
        """Whether rows are let go of by the times of those that come after them."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls)


@dataclass(frozen=True)
class PhysicalNormalize:
    """The exact changelog of an input that leaves out old rows; rows are those of `input.calc.output`.

    `takes_back`: expired rows are retracted. `arrivals`: a row that is written again
    with equal values is retracted and inserted, as its arrival number is another one.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    state: PhysicalInput = field(metadata=fact("state"))
    reason: str = field(metadata=ASIDE)
    calc: Calc = field(metadata=ASIDE)
    takes_back: bool = field(default=False, metadata=fact("expired", "taken back"))
    arrivals: bool = field(default=False, metadata=fact("arrivals", "emitted"))
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)

    @property
    def only_comes(self) -> bool:
        """Whether nothing in the input is ever taken back or written again."""
        scan = self.input
        return isinstance(scan, PhysicalScan) and scan.source.mode == "append" and self.state.layout == "multiset"


@dataclass(frozen=True)
class PhysicalLookup:
    """Each left row with the right row that is nearest in time; without a `match`, with all that are there as it comes.

    `pads`: a left row that finds none is there all the same. `match` names columns of the two inputs' records. `schema`
    is that of the rows that come out, which are the two concatenated.
    """

    node: str = field(metadata=ASIDE)
    left: PhysicalNode = field(metadata=CHILD)
    right: PhysicalNode = field(metadata=CHILD)
    left_input: PhysicalInput = field(metadata=fact("left"))
    right_input: PhysicalInput = field(metadata=fact("right"))
    match: TimeMatch | None = field(metadata=fact("by"))
    pads: bool = field(metadata=fact("kind", "left", empty="inner"))
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalTemporalFilter:
    """The rows whose time has come, by `begins`, and is not over, by `ends`; rows are those of `input.calc.output`.

    What the watermark of `closing` leaves behind is late. `most`: about how many rows it lets out at a time. `order` is
    what the user wrote, where all rows are to come in an order. `whole`: all rows of a time come together.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    clock: Clock = field(metadata=fact("clock"))
    begins: ColumnTime | None = field(metadata=fact("begins", empty="always"))
    ends: ColumnTime | None = field(metadata=fact("ends", empty="always"))
    reason: str = field(metadata=ASIDE)
    calc: Calc = field(metadata=ASIDE)
    closing: Closing | None = field(default=None, metadata=NO_FACT)
    most: int | None = field(default=None, metadata=NO_FACT)
    order: tuple[str, ...] = field(default=(), metadata=ASIDE)
    whole: bool = field(default=False, metadata=NO_FACT)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalStamp:
    """Rows of `input.calc.output`, each with the time at which it is processed behind it: `schema` is that of both."""

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalMatch:
    """The matches of a pattern in the rows of each partition.

    The key of the changes that come in is the partition, their sub-key the order, which begins with a time.
    `closing` says which watermark puts the rows in order. `partition` and `order` are what the user wrote.
    """

    node: str = field(metadata=ASIDE)
    input: PhysicalNode = field(metadata=CHILD)
    matching: Matching
    closing: Closing
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)
    calc: Calc = field(metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)
    fused: bool = field(default=False, metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalUnion:
    """All inputs as one: each has a calc that leads to the same consumer. A union keeps nothing and does nothing."""

    node: str = field(metadata=ASIDE)
    inputs: tuple[PhysicalNode, ...] = field(metadata=CHILD)
    traits: Traits = field(default=Traits(), metadata=ASIDE)

    @property
    def calc(self) -> Calc:
        """That of the first input: all have the same output, key, sub-key and side."""
        return self.inputs[0].calc


PhysicalOperator = (
    PhysicalJoin
    | PhysicalAggregate
    | PhysicalRank
    | PhysicalSession
    | PhysicalOver
    | PhysicalLookup
    | PhysicalNormalize
    | PhysicalTemporalFilter
    | PhysicalStamp
    | PhysicalMatch
)
"""The nodes that run in the shards of a stage."""

PhysicalNode = PhysicalScan | PhysicalOperator | PhysicalUnion


@dataclass(frozen=True)
class PhysicalSink:
    """The root: where the changes go.

    `key` names the columns of the topic's key and the sink's unique key; empty for a retract or append topic without
    one. `exchange` says that the changes must be shuffled by that key before they are written, because rows with one
    key may come from several shards of the input. `ordered` says that the rows of a batch are written in the order of
    their sub-key and, where that is the same, of their arrival. `fixes` are the parts of the input's partition key for
    which that is not so although the key does not name them: they are the same in all rows that ever have one key.
    `value` and `key_record` are the schemas of the topic, `format` and `connect_schema` are how rows are written.
    """

    name: str
    topic: str
    mode: ChangelogMode
    input: PhysicalNode = field(metadata=CHILD)
    key: tuple[str, ...]
    value: Record
    key_record: Record | None
    exchange: bool
    row_kind: RowKindHeader = DEFAULT_HEADER
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    fixes: tuple[str, ...] = ()
    ordered: bool = False
    format: Literal["avro", "json"] = "avro"
    connect_schema: bool = False

    @property
    def by_seq(self) -> bool:
        """Whether the changes come straight from a table whose rows replace each other: the last of a key wins."""
        scan = self.input
        return (
            self.mode == "upsert" and isinstance(scan, PhysicalScan) and scan.source.replaces and not scan.calc.expands
        )
