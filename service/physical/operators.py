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
    """A stateful equi-join (or a cross join, with no key) with an optional additional condition.

    - `condition` reads the columns of `left.calc.output` and `right.calc.output`.
    - `schema`: the record of the rows that the join emits and its calc reads: left and right concatenated, or only the
      left row for kinds that emit only left rows. For "mark" and "in", the match flag follows the left row.
    - `facts`: the nodes that feed side 2 of a NOT IN or an IN.
    - `on_error`: the policy for pairs on which the condition fails. If the policy is not to fail the query, these pairs
      do not match.
    - `near`: the bounds that the condition sets on the distance between the left and the right time of a pair.
    - `placed`: the reason why the planner moved the join, or empty.
    - `unmarked`, here and in other operators: table columns, such as `sales.at`. A watermark on them would evict rows.
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
        """For each side, the rule by which event time evicts the side's rows, or None if there is no rule."""
        return self.left_input.closing, self.right_input.closing


@dataclass(frozen=True)
class PhysicalAggregate(PhysicalUnary):
    """An aggregate: GROUP BY with its calls, or DISTINCT. Its calc reads rows of `aggregation.output`."""

    aggregation: Aggregation
    unmarked: tuple[str, ...] = field(default=(), metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.aggregation.closing,)


@dataclass(frozen=True)
class RankCondition:
    """A condition on the rows in a rank's range and on some of their rank numbers.

    `numbers` is the record of these numbers, and `functions` says how each number is computed. `bound` is a column, or
    None. No rank number above this column's value satisfies the condition, and all rows of a partition, at all times,
    have the same value in it. `on_error` is the policy for a row on which the condition fails. If the policy is not to
    fail the query, the row is not in the result.
    """

    expression: Expression = field(metadata=fact("condition"))
    numbers: Record = field(metadata=NO_FACT)
    functions: tuple[RankFunction, ...] = field(metadata=NO_FACT)
    bound: str | None = field(default=None, metadata={**COLUMN, **NO_FACT})
    on_error: OnError = "fail"


@dataclass(frozen=True)
class PhysicalRank(PhysicalUnary):
    """A rank, which emits the rows in the range of `ranking`.

    The key of the incoming changes is the partition, and their sub-key is the order. `schema` is the record of the
    emitted rows: `input.calc.output`, followed by the columns `numbers`, each with its rank function. `identity`
    contains columns of the input's record. `partition` and `order` are the user's SQL. `reason` says why the strategy
    was chosen.
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
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalSession(PhysicalUnary):
    """A session window, which adds the start of each row's session and, if `ends` is set, the session's end.

    The key of the incoming changes is the partition. `time` is a column of the input's record. `gap` is in
    microseconds. `schema` is the record of the emitted rows. `partition` and `order` are the user's SQL.
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
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.state.closing,)


@dataclass(frozen=True)
class OrderMeasure:
    """The column from which frame distances are computed, and the column's sort order."""

    column: str = field(metadata=COLUMN)
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PhysicalOver(PhysicalUnary):
    """Window functions with ORDER BY. Their results are the last columns of `schema`.

    The key of the incoming changes is the partition, and their sub-key is the order. `partition` and `order` are the
    user's SQL. If rows arrive in time order and are never retracted, `ahead` is how long after a row's time the row's
    results may still change, in microseconds. Otherwise it is None.
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
        """Whether rows are evicted according to the times of later rows."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalNormalize(PhysicalUnary):
    """A Normalize, which turns an input that omits old rows into an exact changelog of `input.calc.output`.

    If `takes_back` is set, expired rows are retracted. If `arrivals` is set and a row is written again with equal
    values, the row is retracted and inserted again, because its arrival number differs.
    """

    state: PhysicalInput = field(metadata=fact("state"))
    reason: str = field(metadata=ASIDE)
    takes_back: bool = field(default=False, metadata=fact("expired", "taken back"))
    arrivals: bool = field(default=False, metadata=fact("arrivals", "emitted"))

    @property
    def only_comes(self) -> bool:
        """Whether no row of the input is ever retracted or written again."""
        scan = self.input
        return isinstance(scan, PhysicalScan) and scan.source.mode == "append" and self.state.layout == "multiset"

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.state.closing,)


@dataclass(frozen=True)
class PhysicalLookup(PhysicalBinary):
    """An as-of join, which joins each left row to the right row that is nearest in time, or a lookup by arrival.

    A lookup by arrival has no `match`: it joins each left row to all right rows that are present when the left row
    arrives. If `pads` is set, a left row without a match is emitted null-padded. `match` names columns of the two
    inputs' records. `schema` is the record of the emitted rows: left and right concatenated.
    """

    left_input: PhysicalInput = field(metadata=fact("left"))
    right_input: PhysicalInput = field(metadata=fact("right"))
    match: TimeMatch | None = field(metadata=fact("by"))
    pads: bool = field(metadata=fact("kind", "left", empty="inner"))
    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """For each side, the rule by which event time evicts the side's rows, or None if there is no rule."""
        return self.left_input.closing, self.right_input.closing


@dataclass(frozen=True)
class PhysicalTemporalFilter(PhysicalUnary):
    """A temporal filter. Its result contains a row of `input.calc.output` from the row's time `begins` until `ends`.

    If `closing` is set, rows behind its watermark are late. `most` is approximately how many rows are released at a
    time. If rows are released in an order, `order` is the user's SQL for it. `whole` says whether all rows with the
    same time are released together.
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
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.closing,)


@dataclass(frozen=True)
class PhysicalSingleRow(PhysicalUnary):
    """A check that the input contains at most 1 row after each batch. `query` is the subquery's text."""

    state: PhysicalInput = field(metadata=fact("state"))
    query: str = field(metadata=ASIDE)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """No rule, because event time never evicts rows."""
        return (None,)


@dataclass(frozen=True)
class PhysicalStamp(PhysicalUnary):
    """A stamp, which adds the processing time to each row of `input.calc.output`. `schema` is the resulting record."""

    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """No rule, because the operator has no state."""
        return (None,)


@dataclass(frozen=True)
class PhysicalMatch(PhysicalUnary):
    """A search for a pattern in the rows of each partition.

    The key of the incoming changes is the partition, and their sub-key is the order, which begins with a time.
    `closing` names the watermark up to which rows are put in order. `partition` and `order` are the user's SQL.
    """

    matching: Matching
    closing: Closing
    partition: tuple[str, ...] = field(metadata=ASIDE)
    order: tuple[str, ...] = field(metadata=ASIDE)
    schema: Record = field(metadata=NO_FACT)

    @property
    def closings(self) -> tuple[Closing | None, ...]:
        """The rule by which event time evicts the input's rows, or None if there is no rule."""
        return (self.closing,)
