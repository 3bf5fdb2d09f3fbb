"""The shapes of logical plan nodes. Nodes are frozen, and passes rewrite them.

    leaf       scan                                no input
    calc       filter, project, expand, window     no state: rows made from one input row stay together, in order
    per row    OVER, session, stamp                each input row once, with added columns
    subset     rank, temporal filter, normalize    some input rows, unchanged
    grouping   aggregate, match                    new rows, one or more per group
    binary     join, lookup                        pairs of rows from two inputs, with different rules for each side
    union      union                               the rows of all inputs

A node class defines only properties of the node itself. Traits and passes are functions over shapes. They mention a
node class only if it behaves differently from its shape.

Every relation in the query has a path of aliases, such as `o`, or `x.o` inside the derived table `x`. Every column has
a unique name that consists of that path and the column's name, such as `o.order_id`. Expressions are sqlglot
expressions over these names (`scalars.resolved`).
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
"""Column types, keyed by column name."""


@dataclass(frozen=True)
class LogicalNode(ABC):
    """A node of a logical plan. The roles of its fields say which of them are inputs (`operators.field_roles`)."""

    @abstractmethod
    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return the changelog mode of the node's output, given the modes of its inputs."""

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change, as a clause for messages."""
        return "rows of its input are updated or deleted"

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the columns in `below` on which conditions may be pushed down to the first input."""
        return frozenset()


@dataclass(frozen=True)
class LogicalInput:
    """One input of an operator, with the settings that the planner has chosen for the input.

    - `carried`: the columns that the operator stores and emits, or that its condition reads. `sub_key`: the columns of
      the sub-key.
    - `layout`: how the rows are stored. `ttl_ms`: how many milliseconds a row is stored after its last change.
    - `closing`: when rows are evicted because of a time in the row.
    - `spread`: the number of shards over which rows with the same key are spread. `copies`: the number of shards to
      which each row is copied.
    - `remade`: whether rows are recomputed from the state of the join below.
    - `arrival`: the column with the rows' arrival numbers, or None if rows keep their existing numbers.
    - `ids`: columns that are carried so that rows that arrived separately remain distinct.
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
    """A node without state. It becomes part of the calc of the scan or operator below it."""

    input: LogicalNode = field(metadata=CHILD)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return the input's mode."""
        return below[0]

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """Return all columns of the input."""
        return below


@dataclass(frozen=True)
class LogicalUnary(LogicalNode):
    """An operator with one input.

    If the operator needs the old row of each update, `finds_old_rows` is a pair: the reason, and whether the input must
    be exact because retracting an unknown row would corrupt the result. Otherwise it is None.
    """

    input: LogicalInput = field(metadata=CHILD)

    finds_old_rows: ClassVar[tuple[str, bool] | None] = None
    has_ttl: ClassVar[bool] = True
    has_one_row: ClassVar[bool] = False
    """Whether the operator's result has at most one row at any time."""
    finds_by_content: ClassVar[bool] = True
    """Whether the operator finds rows by their content, so that it needs the row digest of a table without a key."""

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The columns whose values choose a row's shard, or None if the input determines the shard."""
        return None

    @property
    def sorts_by(self) -> tuple[OrderColumn, ...]:
        """The ORDER BY columns, by which rows are ordered within a partition."""
        return ()

    @property
    def reads(self) -> frozenset[str]:
        """The input columns that the operator itself reads, in addition to the columns that it emits."""
        return frozenset()

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """The conditions that are true for every row that the node emits."""
        return ()

    @abstractmethod
    def emits(self, below: Types) -> dict[str, Type]:
        """Return the columns that the node emits, given the columns of its input."""

    def only(self, _wanted: AbstractSet[str]) -> Self:
        """Return the node with only the results in `_wanted`."""
        return self

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the partition columns, because a condition on them removes whole partitions."""
        return frozenset(self.shards_by or ())


class InPartitions:
    """A mixin for operators that process the rows of each partition in order."""

    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]

    @property
    def shards_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.partition

    @property
    def sorts_by(self) -> tuple[OrderColumn, ...]:
        """The ORDER BY columns, by which rows are ordered within a partition."""
        return self.order


@dataclass(frozen=True)
class LogicalPerRow(LogicalUnary):
    """An operator that emits each input row once, with added columns."""

    @abstractmethod
    def adds(self, below: Types) -> dict[str, Type]:
        """Return the columns that the node adds to those of its input."""

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the input's columns and the added columns."""
        return {**below, **self.adds(below)}


@dataclass(frozen=True)
class LogicalSubset(LogicalUnary):
    """An operator that emits some of the input rows. A rank also adds columns with numbers."""

    def emits(self, below: Types) -> dict[str, Type]:
        """Return the input's columns."""
        return dict(below)


@dataclass(frozen=True)
class LogicalGrouping(LogicalUnary):
    """An operator that emits new rows, one or more per group of input rows."""


@dataclass(frozen=True)
class LogicalBinary(LogicalNode):
    """An operator with two inputs.

    `keys` contains the equalities that `passes.extract_equal_keys` has moved out of `condition`.
    """

    left: LogicalInput = field(metadata=CHILD)
    right: LogicalInput = field(metadata=CHILD)
    condition: tuple[exp.Expr, ...]
    keys: tuple[EqualKey, ...] = field(default=(), kw_only=True)

    @property
    def sides(self) -> tuple[LogicalInput, LogicalInput]:
        """The left and the right input."""
        return self.left, self.right
