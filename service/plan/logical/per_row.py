"""Logical operators that emit each input row once, with added columns."""

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
    """A session window, which adds a column `start` with the start of each row's session.

    A session consists of rows of one partition, each at most `gap` microseconds after the previous row. The column
    `time`, which is never NULL, contains the row's time. `end` is the added column with the session's last time plus
    the gap, or None if no operator reads that column (`sql.session_ends`). `at` is the call in the SQL.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    time: str = field(metadata=COLUMN)
    gap: int
    start: str = field(metadata=RESULTS)
    end: str | None = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)

    @property
    def last(self) -> str:
        """The name of the column in which an aggregate returns a session's last time. No query can use this name."""
        return f"{self.start}#last"

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("sessions find rows by their content", False)

    @property
    def shards_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.partition

    @property
    def reads(self) -> frozenset[str]:
        """The time column."""
        return frozenset([self.time])

    def adds(self, below: Types) -> dict[str, Type]:
        """Return the column with the session's start and, if an operator reads it, the column with its end."""
        moment = LOCAL if family(below[self.time]) == "local" else TIMESTAMP
        return {name: moment for name in (self.start, self.end) if name is not None}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `retract`, because a row may change the sessions of other rows."""
        return "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "a new row may merge two sessions"


@dataclass(frozen=True)
class LogicalOver(InPartitions, LogicalPerRow):
    """Window functions. For each call in `calls`, the node adds a column with the call's result over the window frame.

    `order` contains the ORDER BY columns. `at` is the first window in the SQL. If rows arrive in time order, `ahead` is
    how long after a row's time the row's results may still change, in microseconds. Otherwise it is None.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    calls: Mapping[str, LogicalWindowCall] = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    ahead: int | None = None

    @property
    def measure(self) -> str | None:
        """The column from which frame distances are computed (RANGE), or None if no frame is bounded by a distance."""
        measured = any(each.frame.kind == "range" and each.frame.measured for each in self.calls.values())
        return self.order[0].column if measured else None

    @property
    def passes(self) -> bool:
        """Whether rows are evicted according to the times of later rows."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls.values())

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("OVER finds rows by their content", False)

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the calls read, and the column from which frame distances are computed."""
        measure = frozenset() if self.measure is None else frozenset([self.measure])
        return measure.union(*(call.reads for call in self.calls.values()))

    def adds(self, _below: Types) -> dict[str, Type]:
        """Return the columns with the calls' results."""
        return {name: call.type for name, call in self.calls.items()}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with only the calls whose results are wanted."""
        return replace(self, calls={name: call for name, call in self.calls.items() if name in wanted})

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `append` if results are final when a row is emitted, otherwise `retract`."""
        return "append" if self.ahead == 0 else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "a row that arrives between other rows changes their OVER results"


@dataclass(frozen=True)
class LogicalStamp(LogicalPerRow):
    """A stamp, which adds a column `time` with the time at which each row is processed.

    `partition` contains the columns that choose the shard in which a row is stamped, or is None if any shard will do.
    `at` is the call in the SQL.
    """

    time: str = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    partition: tuple[str, ...] | None = field(default=None, metadata=COLUMN)

    has_ttl: ClassVar[bool] = False
    finds_by_content: ClassVar[bool] = False

    @property
    def shards_by(self) -> tuple[str, ...] | None:
        """The partition columns, or None if rows may be in any shard."""
        return self.partition

    def adds(self, _below: Types) -> dict[str, Type]:
        """Return the time column."""
        return {self.time: TIMESTAMP}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return `append`, because `passes.stamp_rows` refuses other inputs."""
        return "append"

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """Return all columns of the input."""
        return below
