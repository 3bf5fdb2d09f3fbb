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
    """The input's rows, each with the start of its session in the added column `start`.

    A session consists of rows of one partition, each at most `gap` microseconds after the previous one by the column
    `time`, which is never NULL. `end` is the column with the last time plus the gap; None if no operator reads it
    (`sql.session_ends`). `at` is the call in the SQL.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    time: str = field(metadata=COLUMN)
    gap: int
    start: str = field(metadata=RESULTS)
    end: str | None = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)

    @property
    def last(self) -> str:
        """The name of the column in which an aggregate has the last time of a session; no query can use this name."""
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
        """Return the start of the session, and its end if it is read."""
        moment = LOCAL if family(below[self.time]) == "local" else TIMESTAMP
        return {name: moment for name in (self.start, self.end) if name is not None}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return retract: a row may change the sessions of others."""
        return "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a new row may merge two sessions"


@dataclass(frozen=True)
class LogicalOver(InPartitions, LogicalPerRow):
    """The input's rows, with one added column for each of `calls`: the call's result over the rows around the row.

    `order` is the order of the rows in a partition. `at` is the first window in the SQL. If rows arrive in time order,
    `ahead` is how long after a row's time its results may change, in microseconds; else it is None.
    """

    partition: tuple[str, ...] = field(metadata=COLUMN)
    order: tuple[OrderColumn, ...]
    calls: Mapping[str, LogicalWindowCall] = field(metadata=RESULTS)
    at: exp.Expr = field(metadata=ASIDE)
    ahead: int | None = None

    @property
    def measure(self) -> str | None:
        """The column by whose values the distances of frames are measured; None if no frame has a distance."""
        measured = any(each.frame.kind == "range" and each.frame.measured for each in self.calls.values())
        return self.order[0].column if measured else None

    @property
    def passes(self) -> bool:
        """Whether the times of later rows evict a row."""
        return self.ahead is not None and all(call.frame.by_distance for call in self.calls.values())

    finds_old_rows: ClassVar[tuple[str, bool] | None] = ("OVER finds rows by their content", False)

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the calls, and the column by which distances are measured."""
        measure = frozenset() if self.measure is None else frozenset([self.measure])
        return measure.union(*(call.reads for call in self.calls.values()))

    def adds(self, _below: Types) -> dict[str, Type]:
        """Return the results of the calls."""
        return {name: call.type for name, call in self.calls.items()}

    def only(self, wanted: AbstractSet[str]) -> Self:
        """Return the node with the calls whose results are wanted."""
        return replace(self, calls={name: call for name, call in self.calls.items() if name in wanted})

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return append if results are final when a row is emitted, else retract."""
        return "append" if self.ahead == 0 else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a row that arrives between other rows changes their OVER results"


@dataclass(frozen=True)
class LogicalStamp(LogicalPerRow):
    """The input's rows, each with the time at which it is processed in the added column `time`.

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
        """Return the time column."""
        return {self.time: TIMESTAMP}

    def mode(self, *_below: ChangelogMode) -> ChangelogMode:
        """Return append: `passes.stamp_rows` refuses other inputs."""
        return "append"

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """Return all columns of the input."""
        return below
