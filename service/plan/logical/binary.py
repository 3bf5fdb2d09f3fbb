"""Logical operators with two inputs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, RESULTS
from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.physical.time_match import TimeMatch
from rowkind.service.plan.logical.node import LogicalBinary


@dataclass(frozen=True)
class LogicalJoin(LogicalBinary):
    """A join of rows that have equal keys and satisfy the condition. Outer joins also emit null-padded rows.

    A semi join, anti join or NOT IN emits only left rows, although `condition` reads both sides. NOT IN has one key and
    no condition. A mark join emits all left rows, with the match flag in the column `answer`. The kind "in" is like NOT
    IN, but it emits all left rows, with a match flag that is NULL where IN is NULL. `at` is the JOIN in the SQL. If the
    planner has moved the join, `placed` is the reason.
    """

    kind: PhysicalJoinKind
    at: exp.Expr = field(metadata=ASIDE)
    answer: str | None = field(default=None, metadata=RESULTS)
    placed: str = field(default="", metadata=ASIDE)

    @property
    def pads_left(self) -> bool:
        """Whether left rows without a match are emitted, with NULL in the right side's columns."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether right rows without a match are emitted, with NULL in the left side's columns."""
        return self.kind in ("right", "full")

    @property
    def filters_left(self) -> bool:
        """Whether only left rows are emitted: either those with a match or those without one."""
        return self.kind in ("semi", "anti", "not in")

    @property
    def keeps_left(self) -> bool:
        """Whether each left row is emitted at most once, without right columns. A match flag may be added."""
        return self.filters_left or self.answer is not None

    @property
    def counts_right(self) -> bool:
        """Whether the result depends on whether the right side contains any rows or any NULLs."""
        return self.kind in ("not in", "in")

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` for an inner or semi join of append inputs, otherwise `retract`."""
        only_added = self.kind in ("inner", "semi")
        return "append" if only_added and all(each == "append" for each in below) else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        if self.kind in ("anti", "not in"):
            return "an unmatched row is retracted when a match arrives"
        if self.keeps_left:
            return "the result of this subquery changes when a match arrives"
        return f"this {self.kind.upper()} JOIN retracts the null-padded row when a match arrives"


@dataclass(frozen=True)
class LogicalLookup(LogicalBinary):
    """A lookup join, which combines each left row with right rows that have equal keys.

    If `match` is set, a left row matches at most one right row: the nearest in time. Otherwise, a left row matches all
    right rows that are present when the left row arrives, and its result is never revised. If `pads` is set, a left row
    without a match is emitted null-padded. `condition` contains the equalities that become keys. `at` is the JOIN in
    the SQL.
    """

    match: TimeMatch | None
    pads: bool
    at: exp.Expr = field(metadata=ASIDE)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Return `append` for a lookup by arrival from an append input, otherwise `retract`.

        The results of a lookup by arrival are never revised.
        """
        return "append" if self.match is None and below[0] == "append" else "retract"

    @property
    def changes(self) -> str:
        """The reason why emitted rows may change."""
        return "a late row may be nearer in time than the current match"

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """Return all columns of the left input. Right rows cannot be filtered: each of them may affect the match."""
        return below
