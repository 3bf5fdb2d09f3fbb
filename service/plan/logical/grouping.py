"""Logical operators that emit new rows, one or more per group of input rows."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, COLUMN, MERGED
from rowkind.operators.match.calls import MatchAggregate, Navigation
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.clocks import Ending
from rowkind.service.physical.matching import CalledColumn, SoughtPattern
from rowkind.service.plan.calls import LogicalAggregateCall, LogicalDefine
from rowkind.service.plan.logical.node import InPartitions, LogicalGrouping, Types
from rowkind.service.plan.scalar.conjuncts import reads


@dataclass(frozen=True)
class LogicalAggregate(LogicalGrouping):
    """An aggregate, which emits one row per group: the `group` columns and one named column per call.

    An aggregate without calls is SELECT DISTINCT. If `is_global` is set, there is no GROUP BY, so there is always
    exactly one row. Call arguments, filters and group columns are columns of the input. The hint SPLIT_DISTINCT sets
    `split_distinct`. `ending` says when groups are evicted according to a call's result. The last `apart` group
    columns, each TIMESTAMP NOT NULL, do not affect the shard.
    """

    group: tuple[str, ...] = field(metadata=COLUMN)
    calls: Mapping[str, LogicalAggregateCall] = field(metadata=MERGED)
    is_global: bool
    at: exp.Expr = field(metadata=ASIDE)
    split_distinct: bool = False
    ending: Ending | None = None
    apart: int = 0

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("an aggregate needs exact changes", True)
    finds_by_content: ClassVar[bool] = False

    @property
    def shards_by(self) -> tuple[str, ...]:
        """The group columns that choose the shard."""
        return self.group[: len(self.group) - self.apart]

    @property
    def reads(self) -> frozenset[str]:
        """The group columns, and the columns that the calls read."""
        return frozenset(self.group).union(*(call.reads for call in self.calls.values()))

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the group columns and the calls' results."""
        return {name: below[name] for name in self.group} | {name: call.type for name, call in self.calls.items()}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with only the calls whose results are wanted. Even without calls, it emits the groups."""
        kept = wanted if self.ending is None else wanted | {self.ending.at.column}
        return replace(self, calls={name: call for name, call in self.calls.items() if name in kept})

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` for a DISTINCT over an append input, otherwise `retract`."""
        only_added = not self.calls and not self.is_global
        return "append" if only_added and below[0] == "append" else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "each new row updates the result of its group"

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the group columns."""
        return frozenset(self.group)


@dataclass(frozen=True)
class LogicalMatch(InPartitions, LogicalGrouping):
    """A search for a row pattern in the rows of each partition. The first ORDER BY column is a time.

    `defines` contains each variable's condition, or None for a variable that every row satisfies. For a match, the node
    emits the `carried` columns of a row and the results of `calls`. `at` is the word MATCH_RECOGNIZE in the SQL.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    sought: SoughtPattern
    defines: tuple[LogicalDefine | None, ...]
    carried: tuple[str, ...] = field(metadata=COLUMN)
    calls: tuple[CalledColumn, ...]
    at: exp.Expr = field(metadata=ASIDE)

    @property
    def time(self) -> str:
        """The time column, which is never NULL after `passes.order_matches`."""
        return self.ordered[0]

    @property
    def ordered(self) -> tuple[str, ...]:
        """The ORDER BY columns."""
        return tuple(each.column for each in self.order if each.column is not None)

    has_ttl: ClassVar[bool] = False
    finds_by_content: ClassVar[bool] = False

    @property
    def reads(self) -> frozenset[str]:
        """The emitted columns, the time column, and the columns that conditions and calls read."""
        defines = [each for each in self.defines if each is not None]
        asked = [*self.calls, *(call for each in defines for call in each.calls)]
        named = (each.call.column for each in asked if isinstance(each.call, Navigation | MatchAggregate))
        read = frozenset([*self.carried, self.time, *(name for name in named if name is not None)])
        return read.union(*(reads(part) for each in defines for part in each.conjuncts))

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the carried columns and the calls' results."""
        return {name: below[name] for name in self.carried} | {each.name: each.type for each in self.calls}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with only the wanted columns and calls."""
        carried = tuple(name for name in self.carried if name in wanted)
        return replace(self, carried=carried, calls=tuple(each for each in self.calls if each.name in wanted))

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `append`, because each match is emitted once."""
        return "append"
