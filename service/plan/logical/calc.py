"""Logical nodes without state: scans, filters, projections, expands, unions, and windows as written in the SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, CHILD, COLUMN, RESULTS
from rowkind.operators.rank.ranking import RankFunction
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.logical.node import LogicalCalc, LogicalNode
from rowkind.service.plan.view import View


@dataclass(frozen=True)
class LogicalScan(LogicalNode):
    """A scan of a table under an alias. The scan emits the columns `used`.

    If `digested` is set, the scan also emits the column `ROW_DIGEST`; if `numbered` is set, the column `ARRIVAL`.
    """

    path: str
    source: SourceTable
    used: tuple[str, ...]
    at: exp.Expr = field(metadata=ASIDE)
    digested: bool = False
    numbered: bool = False

    def name(self, column: str) -> str:
        """Return the name that one of the table's columns has in the plan."""
        return f"{self.path}.{column}"

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return the table's mode."""
        return self.source.mode

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return f"{self.source.table} has mode {self.source.mode}, so its rows may be updated or deleted"


@dataclass(frozen=True)
class LogicalFilter(LogicalCalc):
    """A filter that passes the rows for which all conjuncts are true."""

    conjuncts: tuple[exp.Expr, ...]


def filtered(node: LogicalNode, conjuncts: Iterable[exp.Expr]) -> LogicalNode:
    """Return the node with a filter above it, or the node itself if there are no conjuncts."""
    kept = tuple(conjuncts)
    return LogicalFilter(node, kept) if kept else node


@dataclass(frozen=True)
class LogicalProject(LogicalCalc):
    """A projection with one named column per output. If the projection is a view's SELECT list, `view` is set."""

    outputs: Mapping[str, exp.Expr]
    view: View | None = None

    @property
    def stands(self) -> bool:
        """Whether the projection is a view that is planned separately. Nothing is pushed down into it."""
        return self.view is not None and self.view.kept is not None


@dataclass(frozen=True)
class LogicalExpand(LogicalCalc):
    """An expand, which emits one row per element of an input row's `array`: the row with the element added.

    - `array`: an array or a map.
    - `elements`: a mapping from added columns to parts of an element. Part 0 is the element itself, the key of a map
      entry, or the first field if `inline` splits structs into fields.
    - `place`: the added column with the element's position in the array, counted from `first`.
    - `outer`: whether a row without elements is emitted once, with NULLs.
    - `distinct`: whether all elements of a row are distinct.
    - `condition`: only elements that satisfy the condition are emitted.
    - `finest`: the position of the grouping set with all columns, if the elements are grouping sets.
    - `at`: the call in the SQL.
    """

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
class LogicalWindow(LogicalCalc):
    """A window function that numbers the rows of each partition in the added column `number` (INT NOT NULL).

    The node only represents the SQL. `rewrite_ranks` turns the node and the condition on the number into a rank or an
    Over, or refuses the query. The hint UNBOUNDED_RANK sets `unbounded`, which allows a query without a limit on the
    number.
    """

    function: RankFunction
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    number: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    unbounded: bool = False

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """Return the partition columns."""
        return frozenset(self.partition)


@dataclass(frozen=True)
class LogicalUnion(LogicalNode):
    """A union of all rows of its inputs. All inputs have the same columns with the same types in the same order."""

    inputs: tuple[LogicalNode, ...] = field(metadata=CHILD)
    at: exp.Expr = field(metadata=ASIDE)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` if all inputs are append, otherwise `retract`."""
        return "append" if all(each == "append" for each in below) else "retract"
