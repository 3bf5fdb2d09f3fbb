"""Logical operators that emit some of the input rows, unchanged except for added rank numbers."""

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
    """A rank, which emits the input rows that are in the range of `ranking` and satisfy `condition`.

    - `numbers`: the columns with rank numbers that downstream operators read, each with its function.
    - `asked`: the columns with rank numbers that only the condition reads, each with its function.
    - `bound`: a column that limits a rank number in the condition, or None. All rows of a partition, at all times, have
      the same value in this column.
    - `ranking`: the range of rank numbers. If the range has no upper bound, rank numbers above `ranking.settled` are
      not distinguished. If `ranking.settled` is None, all rank numbers are distinguished.
    - `identity`: the unique key by which rows replace each other, for the strategy "improving".
    - `in_time`: whether rows are ranked by a time and arrive in that order, so that a row never changes the rank of
      another row.
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
        """The columns that the condition reads, and the columns of `identity`."""
        return frozenset(self.identity).union(*map(reads, self.condition))

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """The rank's condition."""
        return self.condition

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the input's columns and the columns with rank numbers."""
        return {**below, **dict.fromkeys(self.numbers, INT)}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with only the wanted rank numbers."""
        return replace(self, numbers={name: of for name, of in self.numbers.items() if name in wanted})

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `append` if rows arrive in the order in which they are ranked, otherwise `retract`."""
        return "append" if self.in_time else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "a ranked row is retracted when another row takes its place"


@dataclass(frozen=True)
class LogicalTemporalFilter(LogicalSubset):
    """A temporal filter. Its result contains a row from the time `begins` until the time `ends` on the clock.

    If `final` is set, rows do not change after they are released. `most` is approximately how many rows are released at
    a time. `order` is the order of release, which begins with a time. Rows with equal values in the columns `partition`
    are in the same shard, in time order. If `partition` is None, rows may be in any shard.
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
        """The partition columns, or None if rows may be in any shard."""
        return self.partition

    @property
    def reads(self) -> frozenset[str]:
        """The time columns and the ordering columns."""
        times = [each.column for each in (self.begins, self.ends) if each is not None]
        return frozenset([*times, *(each.column for each in self.order if each.column is not None)])

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` if rows are final, or if the input is append and rows never end; otherwise `retract`."""
        return "append" if self.final or (self.ends is None and below[0] == "append") else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "a row is retracted when its time has passed"

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return no columns, because conditions must remain above the filter."""
        return frozenset()


@dataclass(frozen=True)
class LogicalSingleRow(LogicalSubset):
    """A check that the scalar subquery `at` returns at most one row. If it has more after a batch, the batch fails."""

    at: exp.Expr = field(metadata=ASIDE)

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("the rows of a scalar subquery are counted", True)
    has_one_row: ClassVar[bool] = True

    @property
    def shards_by(self) -> tuple[str, ...]:
        """No columns, because all rows are in one shard."""
        return ()

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` for an append input, otherwise `retract`."""
        return "append" if below[0] == "append" else "retract"


@dataclass(frozen=True)
class LogicalNormalize(LogicalSubset):
    """A Normalize, which turns its input into an exact changelog.

    `key` is the input's primary key, or empty for a multiset. `reason` says why the node is needed. If `takes_back` is
    set, expired rows are retracted. `arrival` is the added column with each row's arrival number, or None if no
    operator reads it.
    """

    key: tuple[str, ...] = field(metadata=COLUMN)
    reason: str = field(metadata=ASIDE)
    takes_back: bool = False
    arrival: str | None = field(default=None, metadata=RESULTS)

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The key columns, or None if there is no key. All columns that can be part of a key then choose the shard."""
        return self.key or None

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the input's columns and the arrival number."""
        return {**below, **({} if self.arrival is None else {self.arrival: BIGINT})}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node without the arrival number unless it is wanted."""
        return replace(self, arrival=self.arrival if self.arrival in wanted else None)

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `retract`, because updates are emitted with their old rows."""
        return "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        expired = "expired rows are retracted because of `on_expire: retract`"
        return expired if self.takes_back else super().changes
