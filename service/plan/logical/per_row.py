"""Operators that emit each input row once, with added columns."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, COLUMN, RESULTS
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.calls import LogicalWindowCall
from rowkind.service.plan.logical.node import InPartitions, LogicalPerRow, Types
from rowkind.service.plan.scalar.types import LOCAL, TIMESTAMP, family


@dataclass(frozen=True)
class LogicalSession(LogicalPerRow):
    """The input's rows, each with the beginning of the session that it is in, as one more column `start`.

    A session is the rows of a partition of which each comes no more than `gap` microseconds after the one before, by
    the column `time`, which is never NULL. `end` is the column with the last time and the gap, None where nobody asks
    for it (`sql.session_ends`). `at` is the call in the SQL.
    """

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

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("sessions find rows by their content", False)

    @property
    def shards_by(self) -> tuple[str, ...]:
        """The partition."""
        return self.partition

    @property
    def reads(self) -> frozenset[str]:
        """The time of a row."""
        return frozenset([self.time])

    def adds(self, below: Types) -> dict[str, Type]:
        """The beginning of the session, and its end."""
        moment = LOCAL if family(below[self.time]) == "local" else TIMESTAMP
        return {name: moment for name in (self.start, self.end) if name is not None}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Rows change."""
        return "retract"

    @property
    def changes(self) -> str:
        """Why they do."""
        return "a row may make two sessions one"


@dataclass(frozen=True)
class LogicalOver(InPartitions, LogicalPerRow):
    """The input's rows, each with the results of `calls` over rows around it, by the names of their columns.

    The rows of a partition are in this order. `at` is the first window in the SQL. Where rows come in the order of
    their time, `ahead` is how long after it their results may change, in microseconds; else None.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    calls: Mapping[str, LogicalWindowCall] = field(metadata=RESULTS)
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

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("OVER finds rows by their content", False)

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the calls, and the one by which distances are measured."""
        measure = frozenset() if self.measure is None else frozenset([self.measure])
        return measure.union(*(call.reads for call in self.calls.values()))

    def adds(self, _below: Types) -> dict[str, Type]:
        """The results of the calls."""
        return {name: call.type for name, call in self.calls.items()}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """The node with the calls whose results are wanted."""
        return replace(self, calls={name: call for name, call in self.calls.items() if name in wanted})

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Inserts only where results are final when a row is emitted."""
        return "append" if self.ahead == 0 else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a row that comes between others changes what OVER gives them"


@dataclass(frozen=True)
class LogicalStamp(LogicalPerRow):
    """The input's rows, each with the time at which it is processed, as one more column `time`.

    `partition`: columns that choose the shard in which the row is stamped; None if any will do. `at` is the call.
    """

    time: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    partition: tuple[str, ...] | None = field(default=None, metadata=COLUMN)

    has_ttl: ClassVar[bool] = False
    finds_by_content: ClassVar[bool] = False

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The partition, if there is one."""
        return self.partition

    def adds(self, _below: Types) -> dict[str, Type]:
        """The time."""
        return {self.time: TIMESTAMP}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Inserts only: `passes.stamp_rows` refuses other rows."""
        return "append"

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """All columns of the input."""
        return below
