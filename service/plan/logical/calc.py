"""Nodes without state: a table's rows, filters, projections, expansions, unions, and windows as the SQL has them."""

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

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """That of the table."""
        return self.source.mode

    @property
    def changes(self) -> str:
        """Why its rows change."""
        return f"{self.source.table} is a table with mode {self.source.mode}, whose rows change"


@dataclass(frozen=True)
class LogicalFilter(LogicalCalc):
    """The rows for which all conjuncts are true."""

    conjuncts: tuple[exp.Expr, ...]


def filtered(node: LogicalNode, conjuncts: Iterable[exp.Expr]) -> LogicalNode:
    """The rows of a node for which all conjuncts are true; the node itself if there are none."""
    kept = tuple(conjuncts)
    return LogicalFilter(node, kept) if kept else node


@dataclass(frozen=True)
class LogicalProject(LogicalCalc):
    """One column per output, by name; of a view, if it says so."""

    outputs: Mapping[str, exp.Expr]
    view: View | None = None

    @property
    def stands(self) -> bool:
        """Whether it is a view that is planned as it stands: nothing from above gets in."""
        return self.view is not None and self.view.kept is not None


@dataclass(frozen=True)
class LogicalExpand(LogicalCalc):
    """Each row of the input as often as its `array` has elements, an array or a map, with one of them in each.

    `elements` are the columns of an element by name, and its parts: 0 is the element, the key of a map, or the first
    field where `inline` takes structs apart. `place` is the column with its number in the row, from `first`. `outer`:
    a row without elements stays, with NULLs; `distinct`: no two elements of a row are equal. Only elements count for
    which `condition` is true. `finest` is the place of the grouping set with all columns. `at` is the call in the SQL.
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
    """The input's rows, each with its number within its partition, INT NOT NULL, as one more column `number`.

    Only what the SQL says: `rewrite_ranks` makes a Rank of it and of the condition on the number, or refuses.
    `unbounded` is the hint UNBOUNDED_RANK: all numbers may be asked for.
    """

    function: RankFunction
    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    number: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    unbounded: bool = False

    def lets_pass(self, _below: AbstractSet[str]) -> AbstractSet[str]:
        """The columns of the partition."""
        return frozenset(self.partition)


@dataclass(frozen=True)
class LogicalUnion(LogicalNode):
    """The rows of all inputs, which have the same columns of the same types, in the same order."""

    inputs: tuple[LogicalNode, ...] = field(metadata=CHILD)
    at: exp.Expr = field(metadata=ASIDE)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Inserts only if no input has anything else."""
        return "append" if all(each == "append" for each in below) else "retract"
