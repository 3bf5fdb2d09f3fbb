"""The operators of a physical plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rowkind.avro.schema import Record
from rowkind.operators.field_roles import ASIDE, CHILD, COLUMN, NO_FACT, RESULTS, fact
from rowkind.operators.rank.ranking import RankFunction, Ranking
from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import OnError
from rowkind.service.physical.clocks import Clock, Closing, ColumnTime, TimeBounds
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.physical.matching import Matching
from rowkind.service.physical.node import (
    PhysicalBinary,
    PhysicalInput,
    PhysicalNode,
    PhysicalScan,
    PhysicalUnary,
)
from rowkind.service.physical.over_call import PhysicalWindowCall
from rowkind.service.physical.time_match import TimeMatch


@dataclass(frozen=True)
class PhysicalJoin(PhysicalBinary):
    """A stateful equi-join (or a cross join, with no key) with an optional further condition.

    `condition` reads the columns of `left.calc.output` and `right.calc.output` side by side. `schema` is the record of
    the rows that the join emits and its calc takes in: the two concatenated, or the left one alone for the kinds
    that emit left rows only, with the answer behind it for "mark" and "in". `facts` feed side 2 of a NOT IN
    or an IN. `on_error` says what becomes of pairs on which the condition fails: unless the query does, they are no
    match. `near`: what the condition says of how far apart the times of a pair may lie. `placed`: why it is not where
    it is written.

    `unmarked`, here and elsewhere: columns of tables, `sales.at`, on which a watermark would let go of rows.
    """

    kind: PhysicalJoinKind = field(metadata=fact("kind"))
    left_input: PhysicalInput = field(metadata=fact("left"))
    right_input: PhysicalInput = field(metadata=fact("right"))
    schema: Record = field(metadata=NO_FACT)
    condition: Expression | None = field(metadata=fact("condition", empty="none"))
    facts: tuple[PhysicalNode, ...] = field(default=(), metadata=CHILD)
    on_error: OnError = "fail"
    near: TimeBounds | None = field(default=None, metadata=NO_FACT)
    placed: str = field(default="", metadata=ASIDE)
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """By side, when its rows are dropped because of their own time."""
        return self.left_input.closing, self.right_input.closing


@dataclass(frozen=True)
class PhysicalAggregate(PhysicalUnary):
    """GROUP BY with its calls, or DISTINCT; its calc takes rows of `aggregation.output`."""

    aggregation: Aggregation
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.aggregation.closing,)


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
class PhysicalRank(PhysicalUnary):
    """The rows of a ranking.

    The key of the changes that come in is the partition, their sub-key the order. `schema` is the record of the rows
    that come out: `input.calc.output`, with the columns `numbers` behind it, which are by these functions. `identity`
    are columns of the input's record.  `partition`
    and `order` are what the user wrote; `reason` says why the strategy was chosen.
    """

    state: PhysicalInput = field(metadata=fact("state"))
    ranking: Ranking = field(metadata=fact("rows"))
    numbers: Mapping[str, RankFunction] = field(metadata={**RESULTS, **fact("number")})
    reason: str = field(metadata=ASIDE)
    identity: tuple[str, ...] = field(metadata={**COLUMN, **fact("identity", empty="none")})
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)
    condition: RankCondition | None = None
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalSession(PhysicalUnary):
    """Rows with the beginning of their session, the last column of `schema`; where it `ends`, its end behind that.

    The key of the changes that come in is the partition. `time` is a column of the input's record; `gap` is in
    microseconds. `partition` and `order` are what the user wrote.
    """

    state: PhysicalInput = field(metadata=fact("state"))
    time: str = field(metadata={**COLUMN, **fact("time")})
    gap: int = field(metadata=fact("gap"))
    ends: bool = field(metadata=fact("ends", "of each row"))
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: str = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.state.closing,)


@dataclass(frozen=True)
class OrderMeasure:
    """The column by whose values rows are ordered, where distances between them count, and how it sorts."""

    column: str = field(metadata=COLUMN)
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PhysicalOver(PhysicalUnary):
    """Rows with the results of window functions, the last columns of `schema`.

    The key of the changes that come in is the partition, their sub-key the order. `partition` and `order` are what the
    user wrote. Where rows come in the order of their time and never go, `ahead` is how long after it their results may
    change, in microseconds; else None.
    """

    state: PhysicalInput = field(metadata=fact("state"))
    calls: tuple[PhysicalWindowCall, ...] = field(metadata=fact("calls", empty="none"))
    measure: OrderMeasure | None = field(metadata=NO_FACT)
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata={**ASIDE, **fact("order", empty="none")})
    schema: Record = field(metadata=NO_FACT)
    ahead: int | None = field(default=None, metadata=fact("keeps"))

    @property
    def passes(self) -> bool:
        """Whether rows are let go of by the times of those that come after them."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalNormalize(PhysicalUnary):
    """The exact changelog of an input that leaves out old rows; rows are those of `input.calc.output`.

    `takes_back`: expired rows are retracted. `arrivals`: a row that is written again
    with equal values is retracted and inserted, as its arrival number is another one.
    """

    state: PhysicalInput = field(metadata=fact("state"))
    reason: str = field(metadata=ASIDE)
    takes_back: bool = field(default=False, metadata=fact("expired", "taken back"))
    arrivals: bool = field(default=False, metadata=fact("arrivals", "emitted"))

    @property
    def only_comes(self) -> bool:
        """Whether nothing in the input is ever taken back or written again."""
        scan = self.input
        return isinstance(scan, PhysicalScan) and scan.source.mode == "append" and self.state.layout == "multiset"

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalLookup(PhysicalBinary):
    """Each left row with the right row that is nearest in time; without a `match`, with all that are there as it comes.

    `pads`: a left row that finds none is there all the same. `match` names columns of the two inputs' records. `schema`
    is that of the rows that come out, which are the two concatenated.
    """

    left_input: PhysicalInput = field(metadata=fact("left"))
    right_input: PhysicalInput = field(metadata=fact("right"))
    match: TimeMatch | None = field(metadata=fact("by"))
    pads: bool = field(metadata=fact("kind", "left", empty="inner"))
    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """By side, when its rows are dropped because of their own time."""
        return self.left_input.closing, self.right_input.closing


@dataclass(frozen=True)
class PhysicalTemporalFilter(PhysicalUnary):
    """The rows whose time has come, by `begins`, and is not over, by `ends`; rows are those of `input.calc.output`.

    What the watermark of `closing` leaves behind is late. `most`: about how many rows it lets out at a time. `order` is
    what the user wrote, where all rows are to come in an order. `whole`: all rows of a time come together.
    """

    clock: Clock = field(metadata=fact("clock"))
    begins: ColumnTime | None = field(metadata=fact("begins", empty="always"))
    ends: ColumnTime | None = field(metadata=fact("ends", empty="always"))
    reason: str = field(metadata=ASIDE)
    closing: Closing | None = field(default=None, metadata=NO_FACT)
    most: int | None = field(default=None, metadata=NO_FACT)
    order: tuple[str, ...] = field(default=(), metadata=ASIDE)
    whole: bool = field(default=False, metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.closing,)


@dataclass(frozen=True)
class PhysicalSingleRow(PhysicalUnary):
    """Rows of `input.calc.output`, of which there is one at most after each batch. `query` is the subquery's text."""

    state: PhysicalInput = field(metadata=fact("state"))
    query: str = field(metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """No row is dropped because of its own time."""
        return (None,)


@dataclass(frozen=True)
class PhysicalStamp(PhysicalUnary):
    """Rows of `input.calc.output`, each with the time at which it is processed behind it: `schema` is that of both."""

    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """Nothing is kept."""
        return (None,)


@dataclass(frozen=True)
class PhysicalMatch(PhysicalUnary):
    """The matches of a pattern in the rows of each partition.

    The key of the changes that come in is the partition, their sub-key the order, which begins with a time.
    `closing` says which watermark puts the rows in order. `partition` and `order` are what the user wrote.
    """

    matching: Matching
    closing: Closing
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """When rows of the input are dropped because of their own time."""
        return (self.closing,)
