"""Node shapes of a logical plan, whose nodes are frozen and rewritten by passes.

    leaf       scan                                no input
    calc       filter, project, expand, window     no state: the rows of one input row stay together, in order
    per row    OVER, session, stamp                each input row once, with added columns
    subset     rank, temporal filter, normalize    some input rows, unchanged
    grouping   aggregate, match                    new rows, one or more per group
    binary     join, lookup                        pairs of rows of two inputs, with rules of their own per side
    union      union                               the rows of all inputs

A node class defines only what follows from the node itself. Traits and passes are functions over shapes, and name a
class only where it differs from its shape.

Every relation in the query has a path of aliases, such as `o`, or `x.o` inside the derived table `x`. Every column has
a unique name made of path and column, such as `o.order_id`. Expressions are sqlglot expressions over these names
(`scalars.resolved`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import ClassVar, Self

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import CHILD, COLUMN, MERGED
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.clocks import Closing
from rowkind.service.physical.node import InputLayout
from rowkind.service.plan.calls import EqualKey

Types = Mapping[str, Type]
"""Columns and their types."""


@dataclass(frozen=True)
class LogicalNode(ABC):
    """A node of a logical plan. The roles of its fields determine its inputs (`operators.field_roles`)."""

    @abstractmethod
    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return the kinds of changes that the node emits, given those of its inputs."""

    @property
    def changes(self) -> str:
        """Why rows that the node emits change, as a clause."""
        return "rows of its input are updated or deleted"

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the columns, out of `below`, on which a condition may be pushed down to the first input."""
        return frozenset()


@dataclass(frozen=True)
class LogicalInput:
    """One input of an operator, with the plan's choices for it.

    - `carried`: the columns that the operator's rows or its condition need. `sub_key`: those of the sub-key.
    - `layout`, `ttl_ms`: how its rows are stored, and for how long after their last change, in ms.
    - `closing`: when they are evicted because of a time of their own.
    - `spread`, `copies`: over how many shards the rows of one key are spread, or to how many each row is copied.
    - `remade`: the rows are recomputed from the state of the join below.
    - `arrival`: the column with the arrival numbers of the rows; None if the rows keep the numbers that they have.
    - `ids`: columns that are carried so that rows that arrived separately stay distinct.
    """

    input: LogicalNode = field(metadata=CHILD)
    carried: tuple[str, ...] = field(default=(), metadata=MERGED)
    layout: InputLayout = "multiset"
    sub_key: tuple[str, ...] = field(default=(), metadata=COLUMN)
    ttl_ms: int | None = None
    closing: Closing | None = None
    spread: int = 1
    copies: int = 1
    remade: bool = False
    arrival: str | None = field(default=None, metadata=COLUMN)
    ids: tuple[str, ...] = field(default=(), metadata=MERGED)


@dataclass(frozen=True)
class LogicalCalc(LogicalNode):
    """A node without state, which becomes part of the calc above the node below it."""

    input: LogicalNode = field(metadata=CHILD)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return the mode of the input."""
        return below[0]

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """Return all columns of the input."""
        return below


@dataclass(frozen=True)
class LogicalUnary(LogicalNode):
    """An operator over one input.

    `finds_old_rows`: why the operator needs the old row of each update, and whether the input must be exact because
    retracting a row that was never there would corrupt the result. None if neither matters.
    """

    input: LogicalInput = field(metadata=CHILD)

    finds_old_rows: ClassVar[tuple[str, bool] | None] = None
    has_ttl: ClassVar[bool] = True
    has_one_row: ClassVar[bool] = False
    """Whether there is at most one row at any time."""
    finds_by_content: ClassVar[bool] = True
    """Whether the operator finds rows by their content, and so needs the row digest of a table without a key."""

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The columns whose values choose a row's shard; None if they follow from the input."""
        return None

    @property
    def sorts_by(self) -> tuple[OrderColumn, ...]:
        """The order of the rows in their partition."""
        return ()

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the input that the operator needs in its rows, besides those that are emitted."""
        return frozenset()

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """The conditions that are true of every row that the node emits."""
        return ()

    @abstractmethod
    def emits(self, below: Types) -> dict[str, Type]:
        """Return the columns of the rows that the node emits, given those of its input."""

    def only(self, _wanted: AbstractSet[str]) -> Self:
        """Return the node without results that are not `wanted`."""
        return self

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the columns of the partition: a condition on them removes whole partitions."""
        return frozenset(self.shards_by or ())


class InPartitions:
    """A mixin for operators over the rows of each partition, in an order."""

    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]

    @property
    def shards_by(self) -> tuple[str, ...]:
        """The partition."""
        return self.partition

    @property
    def sorts_by(self) -> tuple[OrderColumn, ...]:
        """The order."""
        return self.order


@dataclass(frozen=True)
class LogicalPerRow(LogicalUnary):
    """An operator that emits each input row once, with added columns."""

    @abstractmethod
    def adds(self, below: Types) -> dict[str, Type]:
        """Return the columns that the node adds to those of its input."""

    def emits(self, below: Types) -> dict[str, Type]:
        """The input's columns and the added ones."""
        return {**below, **self.adds(below)}


@dataclass(frozen=True)
class LogicalSubset(LogicalUnary):
    """An operator that emits some of the input rows, unchanged except for added numbers."""

    def emits(self, below: Types) -> dict[str, Type]:
        """The input's columns."""
        return dict(below)


@dataclass(frozen=True)
class LogicalGrouping(LogicalUnary):
    """An operator that emits rows of its own, one or more per group of input rows."""


@dataclass(frozen=True)
class LogicalBinary(LogicalNode):
    """An operator over two inputs.

    `keys` are the equalities of its `condition`, once `passes.extract_equal_keys` has taken them out of it.
    """

    left: LogicalInput = field(metadata=CHILD)
    right: LogicalInput = field(metadata=CHILD)
    condition: tuple[exp.Expr, ...]
    keys: tuple[EqualKey, ...] = field(default=(), kw_only=True)

    @property
    def sides(self) -> tuple[LogicalInput, LogicalInput]:
        """Left and right."""
        return self.left, self.right
