"""The logical plan: what the query means, as a tree of frozen nodes that passes rewrite.

Every relation in the query has a path of aliases, such as `o` or `x.o` inside of the derived table `x`, and every
column a unique name: path and column, `o.order_id`. Expressions are sqlglot's over these (`scalars.resolved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.operators.field_roles import ASIDE, CHILD, COLUMN, RESULTS, UNITED
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
    """A table under an alias, with the columns `used`; also `ROW_DIGEST` if `digested`, and `ARRIVAL` if `numbered`."""

    path: str
    source: SourceTable
    used: tuple[str, ...]
    at: exp.Expr = field(metadata=ASIDE)
    digested: bool = False
    numbered: bool = False

    def name(self, column: str) -> str:
        """What a column of the table is called in the plan."""
        return f"{self.path}.{column}"


@dataclass(frozen=True)
class LogicalFilter:
    """The rows for which all conjuncts are true."""

    input: LogicalNode = field(metadata=CHILD)
    conjuncts: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class LogicalProject:
    """One column per output, by name; of a view, if it says so."""

    input: LogicalNode = field(metadata=CHILD)
    outputs: Mapping[str, exp.Expr]
    view: View | None = None

    @property
    def stands(self) -> bool:
        """Whether it is a view that is planned as it stands: nothing from above gets in."""
        return self.view is not None and self.view.kept is not None


@dataclass(frozen=True)
class LogicalInput:
    """One input of an operator and what the plan chose for it.

    `carried` are the columns that the operator's rows or its condition need; `sub_key` those of the sub-key. The rows
    of one key are dealt out to as many shards as `spread`, or each goes to as many as `copies`. `closing` is when they
    are dropped because of a time of their own. `remade`: the join below keeps them. `arrival` is the column with
    their arrival numbers, None for their own; `ids` are carried to keep rows of different arrival apart.
    """

    input: LogicalNode = field(metadata=CHILD)
    carried: tuple[str, ...] = field(default=(), metadata=UNITED)
    layout: InputLayout = "multiset"
    sub_key: tuple[str, ...] = field(default=(), metadata=COLUMN)
    ttl_ms: int | None = None
    closing: Closing | None = None
    spread: int = 1
    copies: int = 1
    remade: bool = False
    arrival: str | None = field(default=None, metadata=COLUMN)
    ids: tuple[str, ...] = field(default=(), metadata=UNITED)


@dataclass(frozen=True)
class LogicalJoin:
    """Pairs of rows that agree in all keys and fulfil the condition, and pads. `at` is the JOIN in the SQL.

    A semi or anti join, or a NOT IN, emits left rows only; `condition` reads both sides all the same. NOT IN has one
    key, and no condition. A mark join emits all left rows, with an `answer`: whether there is a match; so does the kind
    "in", whose answer is NULL where that of IN is, and is otherwise like NOT IN. `placed`: why it is not as written.
    """

    kind: PhysicalJoinKind
    left: LogicalInput = field(metadata=CHILD)
    right: LogicalInput = field(metadata=CHILD)
    condition: tuple[exp.Expr, ...]
    at: exp.Expr = field(metadata=ASIDE)
    keys: tuple[EqualKey, ...] = ()
    answer: str | None = field(default=None, metadata=RESULTS)
    placed: str = field(default="", metadata=ASIDE)

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

    Without calls it is SELECT DISTINCT. `is_global`: no GROUP BY, so always one row. Arguments, filters and groups are
    columns below. `split_distinct` is the hint. `ending`: when groups are dropped, by the result of a call. The last
    `apart` group columns, each TIMESTAMP NOT NULL, do not decide the shard.
    """

    input: LogicalInput = field(metadata=CHILD)
    group: tuple[str, ...] = field(metadata=COLUMN)
    calls: Mapping[str, LogicalCall] = field(metadata=UNITED)
    is_global: bool
    at: exp.Expr = field(metadata=ASIDE)
    split_distinct: bool = False
    ending: Ending | None = None
    apart: int = 0


@dataclass(frozen=True)
class LogicalWindow:
    """The input's rows, each with its number within its partition, INT NOT NULL, as one more column `number`.

    Only what the SQL says: `rewrite_ranks` makes a Rank of it and of the condition on the number, or refuses.
    `unbounded` is the hint UNBOUNDED_RANK: all numbers may be asked for.
    """

    input: LogicalNode = field(metadata=CHILD)
    function: RankFunction
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    number: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    unbounded: bool = False


@dataclass(frozen=True)
class LogicalRank:
    """The input's rows of a ranking for which `condition` is true.

    `numbers` are the columns with numbers that somebody reads, and by which function each is; `asked` are those that
    only the condition reads. `bound` is a column that the condition bounds a number by and that is the same in all rows
    that a partition ever has; None where there is none. Without an upper bound, nobody tells numbers above `settled`
    apart; None where somebody may. `identity` is the unique key by which rows are replaced, for the strategy
    "improving". `in_time`: rows come in the order of the time by which they are ranked, so that none moves others.
    """

    input: LogicalInput = field(metadata=CHILD)
    ranking: Ranking
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    numbers: Mapping[str, RankFunction] = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    strategy: RankStrategy = "retract"
    reason: str = field(default="", metadata=ASIDE)
    identity: tuple[str, ...] = field(default=(), metadata=COLUMN)
    condition: tuple[exp.Expr, ...] = ()
    asked: Mapping[str, RankFunction] = field(default_factory=dict, metadata=RESULTS)
    bound: str | None = field(default=None, metadata=COLUMN)
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

    input: LogicalNode = field(metadata=CHILD)
    array: exp.Expr
    elements: Mapping[str, int] = field(metadata=RESULTS)
    place: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
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

    input: LogicalInput = field(metadata=CHILD)
    partition: tuple[str, ...] = field(metadata=COLUMN)
    time: str = field(metadata=COLUMN)
    gap: int
    start: str = field(metadata=RESULTS)
    end: str | None = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)

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

    input: LogicalInput = field(metadata=CHILD)
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    calls: Mapping[str, LogicalOverCall] = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
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

    left: LogicalInput = field(metadata=CHILD)
    right: LogicalInput = field(metadata=CHILD)
    condition: tuple[exp.Expr, ...]
    match: TimeMatch | None
    pads: bool
    at: exp.Expr = field(metadata=ASIDE)
    keys: tuple[EqualKey, ...] = ()

    @property
    def sides(self) -> tuple[LogicalInput, LogicalInput]:
        """Left and right."""
        return self.left, self.right


@dataclass(frozen=True)
class LogicalTemporalFilter:
    """The rows whose time has come, by the column `begins`, and is not over, by `ends`, as the clock goes.

    `final`: rows do not change after they are released. `most`: about how many are released at a time. `order`: the
    order of release, a time first. Rows equal in `partition` are in one shard, in time order; None: in any.
    """

    input: LogicalInput = field(metadata=CHILD)
    clock: Clock
    begins: ColumnTime | None
    ends: ColumnTime | None
    final: bool
    reason: str = field(metadata=ASIDE)
    at: exp.Expr = field(metadata=ASIDE)
    most: int | None = None
    order: tuple[OrderColumn, ...] = ()
    partition: tuple[str, ...] | None = field(default=None, metadata=COLUMN)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns with the times, and those of the order."""
        times = (each.column for each in (self.begins, self.ends) if each is not None)
        return (*times, *(each.column for each in self.order if each.column is not None))


@dataclass(frozen=True)
class LogicalStamp:
    """The input's rows, each with the time at which it is processed, as one more column `time`.

    `partition`: columns that choose the shard in which the row is stamped; None if any will do. `at` is the call.
    """

    input: LogicalInput = field(metadata=CHILD)
    time: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    partition: tuple[str, ...] | None = field(default=None, metadata=COLUMN)


@dataclass(frozen=True)
class LogicalMatch:
    """The matches of a pattern in the rows of each partition, in an order that begins with a time.

    `conditions` are those of the variables, None for one that is always true. What comes out are the columns `carried`
    of a row and what the `calls` come to. `at` is the word MATCH_RECOGNIZE in the SQL.
    """

    input: LogicalInput = field(metadata=CHILD)
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    sought: SoughtPattern
    conditions: tuple[LogicalDefine | None, ...]
    carried: tuple[str, ...] = field(metadata=COLUMN)
    calls: tuple[CalledColumn, ...]
    at: exp.Expr = field(metadata=ASIDE)

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

    `takes_back`: expired rows are retracted. `arrival` is the column with each row's arrival number, None if unused.
    """

    input: LogicalInput = field(metadata=CHILD)
    key: tuple[str, ...] = field(metadata=COLUMN)
    reason: str = field(metadata=ASIDE)
    takes_back: bool = False
    arrival: str | None = field(default=None, metadata=RESULTS)


@dataclass(frozen=True)
class LogicalUnion:
    """The rows of all inputs, which have the same columns of the same types, in the same order."""

    inputs: tuple[LogicalNode, ...] = field(metadata=CHILD)
    at: exp.Expr = field(metadata=ASIDE)


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
