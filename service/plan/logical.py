"""The logical plan: what the query means, as a tree of frozen nodes that passes rewrite.

Every relation in the query has a path of aliases, such as `o` or `x.o` inside of the derived table `x`, and every
column a unique name: path and column, `o.order_id`. Expressions are sqlglot's over these (`scalars.resolved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.operators.ranking import RankFunction, Ranking
from rowkind.service.clocks import Clock, Closing, ColumnTime, Ending
from rowkind.service.join_kinds import PhysicalJoinKind
from rowkind.service.matching import CalledColumn, SoughtPattern
from rowkind.service.physical import InputLayout, RankStrategy
from rowkind.service.plan.calls import EqualKey, LogicalCall, LogicalDefine, LogicalOverCall, OrderColumn
from rowkind.service.plan.view import View
from rowkind.service.source_table import SourceTable
from rowkind.service.time_match import TimeMatch


@dataclass(frozen=True)
class LogicalScan:
    """One use of a table under an alias. `used` are the columns somebody reads, all until they are pruned.

    `digested` says that `ROW_DIGEST` comes with them.
    """

    path: str
    source: SourceTable
    used: tuple[str, ...]
    at: exp.Expr
    digested: bool = False

    def name(self, column: str) -> str:
        """What a column of the table is called in the plan."""
        return f"{self.path}.{column}"


@dataclass(frozen=True)
class LogicalFilter:
    """The rows for which all conjuncts are true."""

    input: LogicalNode
    conjuncts: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class LogicalProject:
    """One column per output, by name; of a view, if it says so."""

    input: LogicalNode
    outputs: Mapping[str, exp.Expr]
    view: View | None = None

    @property
    def stands(self) -> bool:
        """Whether it is a view that is planned as it stands: nothing from above gets in."""
        return self.view is not None and self.view.kept is not None


@dataclass(frozen=True)
class LogicalInput:
    """One input of an operator and what the plan chose for it.

    `carried` are the columns that the operator's rows or its condition need; `sub_key` the columns of the sub-key. The
    rows of one key are dealt out to as many shards as `spread`, or each goes to as many as `copies`. `closing` is when
    its rows are let go of because of a time of their own, by columns of the plan. `remade`: the join below keeps them.
    """

    input: LogicalNode
    carried: tuple[str, ...] = ()
    layout: InputLayout = "multiset"
    sub_key: tuple[str, ...] = ()
    ttl_ms: int | None = None
    closing: Closing | None = None
    spread: int = 1
    copies: int = 1
    remade: bool = False


@dataclass(frozen=True)
class LogicalJoin:
    """Pairs of rows that agree in all keys and fulfil the condition, and pads. `at` is the JOIN in the SQL.

    A semi or anti join, or a NOT IN, emits left rows only; `condition` reads both sides all the same. NOT IN has one
    key, and no condition. A mark join emits all left rows, with an `answer`: whether there is a match; so does the kind
    "in", whose answer is NULL where that of IN is, and is otherwise like NOT IN. `placed`: why it is not as written.
    """

    kind: PhysicalJoinKind
    left: LogicalInput
    right: LogicalInput
    condition: tuple[exp.Expr, ...]
    at: exp.Expr
    keys: tuple[EqualKey, ...] = ()
    answer: str | None = None
    placed: str = ""

    @property
    def sides(self) -> tuple[LogicalInput, LogicalInput]:
        """Left and right."""
        return self.left, self.right

    @property
    def pads_left(self) -> bool:
        """Whether left rows without a match appear, the right side's columns NULL."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether right rows without a match appear, the left side's columns NULL."""
        return self.kind in ("right", "full")

    @property
    def filters_left(self) -> bool:
        """Whether only left rows come out: those with a match, or those without one."""
        return self.kind in ("semi", "anti", "not in")

    @property
    def keeps_left(self) -> bool:
        """Whether what comes out are left rows, once each: some of them, or all with an answer."""
        return self.filters_left or self.answer is not None

    @property
    def counts_right(self) -> bool:
        """Whether the right side's rows and NULLs are counted as a whole."""
        return self.kind in ("not in", "in")


@dataclass(frozen=True)
class LogicalAggregate:
    """One row for each group: the `group` columns under their names, and each call's result under its own.

    Without calls it is SELECT DISTINCT. `is_global` says that there is no GROUP BY, and so always one row. What
    arguments, filters and groups are computed from is a Project below. `split_distinct` is the hint SPLIT_DISTINCT.
    `ending` is when groups are let go of, by the result of a call. The last `apart` of the group's columns, each
    TIMESTAMP NOT NULL, have no say in which shard a group is.
    """

    input: LogicalInput
    group: tuple[str, ...]
    calls: Mapping[str, LogicalCall]
    is_global: bool
    at: exp.Expr
    split_distinct: bool = False
    ending: Ending | None = None
    apart: int = 0


@dataclass(frozen=True)
class LogicalWindow:
    """The input's rows, each with its number within its partition, INT NOT NULL, as one more column `number`.

    Only what the SQL says: `rewrite_ranks` makes a Rank of it and of the condition on the number, or refuses.
    `unbounded` is the hint UNBOUNDED_RANK: all numbers may be asked for.
    """

    input: LogicalNode
    function: RankFunction
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    number: str
    at: exp.Expr
    unbounded: bool = False


@dataclass(frozen=True)
class LogicalRank:
    """The input's rows of a ranking, of these the ones for which `condition` is true.

    `numbers` are the columns with numbers that somebody reads, and by which function each is; `asked` are those that
    only the condition reads. `bound` is a column that the condition bounds a number by and that is the same in all rows
    that a partition ever has; None where there is none. Without an upper bound, nobody tells numbers above `settled`
    apart; None where somebody may. `identity` is the unique key by which rows are replaced, for the strategy
    "improving". `in_time`: rows come in the order of the time by which they are ranked, so that none moves others.
    """

    input: LogicalInput
    ranking: Ranking
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    numbers: Mapping[str, RankFunction]
    at: exp.Expr
    strategy: RankStrategy = "retract"
    reason: str = ""
    identity: tuple[str, ...] = ()
    condition: tuple[exp.Expr, ...] = ()
    asked: Mapping[str, RankFunction] = field(default_factory=dict)
    bound: str | None = None
    settled: int | None = None
    in_time: bool = False


@dataclass(frozen=True)
class LogicalExpand:
    """Each row of the input as often as its `array` has elements, an array or a map, with one of them in each.

    `elements` are the columns of an element by name, and its parts: 0 is the element, the key of a map, or the first
    field where `inline` takes structs apart. `place` is the column with its number in the row, from `first`. `outer`:
    a row without elements stays, with NULLs; `distinct`: no two elements of a row are equal. Only elements count for
    which `condition` is true. `finest` is the place of the grouping set with all columns. `at` is the call in the SQL.
    """

    input: LogicalNode
    array: exp.Expr
    elements: Mapping[str, int]
    place: str
    at: exp.Expr
    first: int = 0
    inline: bool = False
    outer: bool = False
    distinct: bool = False
    finest: int | None = None
    condition: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True)
class LogicalSession:
    """The input's rows, each with the beginning of the session that it is in, as one more column `start`.

    A session is the rows of a partition of which each comes no more than `gap` microseconds after the one before, by
    the column `time`, which is never NULL. `end` is the column with the last time and the gap, None where nobody asks
    for it (`sql.session_ends`). `at` is the call in the SQL.
    """

    input: LogicalInput
    partition: tuple[str, ...]
    time: str
    gap: int
    start: str
    end: str | None
    at: exp.Expr

    @property
    def last(self) -> str:
        """What the last time of a session is called where an aggregate has it; no query can say so."""
        return f"{self.start}#last"


@dataclass(frozen=True)
class LogicalOver:
    """The input's rows, each with the results of `calls` over rows around it, by the names of their columns.

    The rows of a partition are in this order. `at` is the first window in the SQL. Where rows come in the order of
    their time, `ahead` is how long after it their results may change, in microseconds; else None.
    """

    input: LogicalInput
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    calls: Mapping[str, LogicalOverCall]
    at: exp.Expr
    ahead: int | None = None

    @property
    def measure(self) -> str | None:
        """The column by whose values distances are measured; None where there are none."""
        measured = any(each.frame.kind == "range" and each.frame.measured for each in self.calls.values())
        return self.order[0].column if measured else None

    @property
    def passes(self) -> bool:
        """Whether rows are let go of by the times of those that come after them."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls.values())


@dataclass(frozen=True)
class LogicalLookup:
    """Each left row with right rows of those that agree in all keys; `pads` says that it is there without any.

    It is one at most, the nearest in time, as `match` says; or where there is none, all that are there when the left
    row comes, and then they are not revised. `condition` are equalities, which become keys. `at` is the JOIN.
    """

    left: LogicalInput
    right: LogicalInput
    condition: tuple[exp.Expr, ...]
    match: TimeMatch | None
    pads: bool
    at: exp.Expr
    keys: tuple[EqualKey, ...] = ()

    @property
    def sides(self) -> tuple[LogicalInput, LogicalInput]:
        """Left and right."""
        return self.left, self.right


@dataclass(frozen=True)
class LogicalTemporalFilter:
    """The rows whose time has come, by the column `begins`, and is not over, by `ends`, as the clock goes.

    `final` says that they do not change any more once they have come. `most`: about how many come at a time. `order` is
    that in which they come, its first column a time; empty where nobody asks. All rows that agree in the columns
    `partition` are in one shard and come in the order of their time; None where they come in any.
    """

    input: LogicalInput
    clock: Clock
    begins: ColumnTime | None
    ends: ColumnTime | None
    final: bool
    reason: str
    at: exp.Expr
    most: int | None = None
    order: tuple[OrderColumn, ...] = ()
    partition: tuple[str, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns with the times, and those of the order."""
        times = (each.column for each in (self.begins, self.ends) if each is not None)
        return (*times, *(each.column for each in self.order if each.column is not None))


@dataclass(frozen=True)
class LogicalStamp:
    """The input's rows, each with the time at which it is processed, as one more column `time`.

    `partition` are the columns that say in which shard a row gets it; None where nobody minds. `at` is the call in the
    SQL.
    """

    input: LogicalInput
    time: str
    at: exp.Expr
    partition: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LogicalMatch:
    """The matches of a pattern in the rows of each partition, in an order that begins with a time.

    `conditions` are those of the variables, None for one that is always true. What comes out are the columns `carried`
    of a row and what the `calls` come to. `at` is the word MATCH_RECOGNIZE in the SQL.
    """

    input: LogicalInput
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    sought: SoughtPattern
    conditions: tuple[LogicalDefine | None, ...]
    carried: tuple[str, ...]
    calls: tuple[CalledColumn, ...]
    at: exp.Expr

    @property
    def time(self) -> str:
        """The column with the time, never NULL behind `passes.order_matches`."""
        return self.ordered[0]

    @property
    def ordered(self) -> tuple[str, ...]:
        """The columns of the order."""
        return tuple(each.column for each in self.order if each.column is not None)


@dataclass(frozen=True)
class LogicalNormalize:
    """The input as an exact changelog: `key` is its primary key, empty where it is a multiset; `reason` is why.

    `takes_back`: rows whose TTL is over go, and whoever comes after is told.
    """

    input: LogicalInput
    key: tuple[str, ...]
    reason: str
    takes_back: bool = False


@dataclass(frozen=True)
class LogicalUnion:
    """The rows of all inputs, which have the same columns of the same types, in the same order."""

    inputs: tuple[LogicalNode, ...]
    at: exp.Expr


LogicalNode = (
    LogicalScan
    | LogicalFilter
    | LogicalProject
    | LogicalExpand
    | LogicalJoin
    | LogicalAggregate
    | LogicalWindow
    | LogicalRank
    | LogicalSession
    | LogicalOver
    | LogicalLookup
    | LogicalNormalize
    | LogicalTemporalFilter
    | LogicalStamp
    | LogicalMatch
    | LogicalUnion
)
