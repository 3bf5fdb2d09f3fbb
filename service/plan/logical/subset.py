"""Operators that emit some of the input rows, unchanged except for added numbers."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, COLUMN, RESULTS
from rowkind.operators.rank.ranking import RankFunction, Ranking
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.clocks import Clock, ColumnTime
from rowkind.service.plan.logical.node import InPartitions, LogicalSubset, Types
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.types import BIGINT, INT


@dataclass(frozen=True)
class LogicalRank(InPartitions, LogicalSubset):
    """The input's rows that are within a ranking and for which `condition` is true.

    `numbers` are the columns with the numbers that downstream operators read, each with its function. `asked` are the
    columns that only the condition reads. `bound` is a column by which the condition bounds a number and which has the
    same value in all rows that a partition ever has; None if there is none. If `ranking` has no upper bound, numbers
    above its `settled` are not distinguished; None if all numbers are. `identity` is the unique key by which rows are
    replaced, for the strategy "improving". `in_time`: rows arrive in the order of the time by which they are ranked, so
    no row moves another.
    """

    ranking: Ranking
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    numbers: Mapping[str, RankFunction] = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    reason: str = field(default="", metadata=ASIDE)
    identity: tuple[str, ...] = field(default=(), metadata=COLUMN)
    condition: tuple[exp.Expr, ...] = ()
    asked: Mapping[str, RankFunction] = field(default_factory=dict, metadata=RESULTS)
    bound: str | None = field(default=None, metadata=COLUMN)
    in_time: bool = False

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("a rank finds rows by their content", False)

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the condition and the identity."""
        return frozenset(self.identity).union(*map(reads, self.condition))

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """The condition."""
        return self.condition

    def emits(self, below: Types) -> dict[str, Type]:
        """The input's columns and the numbers."""
        return {**below, **dict.fromkeys(self.numbers, INT)}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with only the wanted numbers."""
        return replace(self, numbers={name: of for name, of in self.numbers.items() if name in wanted})

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return append if rows arrive in the order by which they are ranked, else retract."""
        return "append" if self.in_time else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a ranked row is retracted when another row takes its place"


@dataclass(frozen=True)
class LogicalTemporalFilter(LogicalSubset):
    """The rows whose time has come, by the column `begins`, and is not over, by the column `ends`, as the clock moves.

    `final`: rows do not change after they are released. `most`: about how many rows are released at a time. `order`:
    the order of release, which begins with a time. Rows that are equal in `partition` are in one shard, in time order;
    None: rows may be in any shard.
    """

    clock: Clock
    begins: ColumnTime | None
    ends: ColumnTime | None
    final: bool
    reason: str = field(metadata=ASIDE)
    at: exp.Expr = field(metadata=ASIDE)
    most: int | None = None
    order: tuple[OrderColumn, ...] = ()
    partition: tuple[str, ...] | None = field(default=None, metadata=COLUMN)

    finds_old_rows: ClassVar[tuple[str, bool] | None] = (
        "a temporal filter emits stored rows later, so it needs exact changes",
        True,
    )
    has_ttl: ClassVar[bool] = False

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The partition, if there is one."""
        return self.partition

    @property
    def reads(self) -> frozenset[str]:
        """The columns with the times, and the ordering columns."""
        times = [each.column for each in (self.begins, self.ends) if each is not None]
        return frozenset([*times, *(each.column for each in self.order if each.column is not None)])

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return append if rows are final, or if rows of an append input never leave; else retract."""
        return "append" if self.final or (self.ends is None and below[0] == "append") else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a row is retracted when its time has passed"

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return no column: a condition stays above."""
        return frozenset()


@dataclass(frozen=True)
class LogicalSingleRow(LogicalSubset):
    """The rows of the scalar subquery `at`. A batch that leaves more than one row fails."""

    at: exp.Expr = field(metadata=ASIDE)

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("the rows of a scalar subquery are counted", True)
    has_one_row: ClassVar[bool] = True

    @property
    def shards_by(self) -> tuple[str, ...]:
        """No columns: there is one shard."""
        return ()

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return append for an append input, else retract."""
        return "append" if below[0] == "append" else "retract"


@dataclass(frozen=True)
class LogicalNormalize(LogicalSubset):
    """The input as an exact changelog. `key` is its primary key, empty for a multiset; `reason` says why it is needed.

    `takes_back`: expired rows are retracted. `arrival` is the column with each row's arrival number; None if unused.
    """

    key: tuple[str, ...] = field(metadata=COLUMN)
    reason: str = field(metadata=ASIDE)
    takes_back: bool = False
    arrival: str | None = field(default=None, metadata=RESULTS)

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The key; None without a key, and then the columns of a row that can be part of a key choose the shard."""
        return self.key or None

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the input's columns and the arrival number."""
        return {**below, **({} if self.arrival is None else {self.arrival: BIGINT})}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node without the arrival number if that is not wanted."""
        return replace(self, arrival=self.arrival if self.arrival in wanted else None)

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return retract: updates come with their old rows."""
        return "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        expired = "expired rows are retracted because of `on_expire: retract`"
        return expired if self.takes_back else super().changes
