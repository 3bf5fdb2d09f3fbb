"""Operators over two inputs."""

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
    """Pairs of rows that agree in all keys and fulfil the condition, and pads. `at` is the JOIN in the SQL.

    A semi or anti join, or a NOT IN, emits left rows only; `condition` reads both sides all the same. NOT IN has one
    key, and no condition. A mark join emits all left rows, with an `answer`: whether there is a match; so does the kind
    "in", whose answer is NULL where that of IN is, and is otherwise like NOT IN. `placed`: why it is not as written.
    """

    kind: PhysicalJoinKind
    at: exp.Expr = field(metadata=ASIDE)
    answer: str | None = field(default=None, metadata=RESULTS)
    placed: str = field(default="", metadata=ASIDE)

    @property
    def pads_left(self) -> bool:
        """Whether left rows without a match appear, the right side's columns NULL."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether right rows without a match appear, the left side's columns NULL."""
        return self.kind in ("right", "full")

    @property
    def filters_left(self) -> bool:
        """Whether only left rows come out: those with a match, or those without one."""
        return self.kind in ("semi", "anti", "not in")

    @property
    def keeps_left(self) -> bool:
        """Whether what comes out are left rows, once each: some of them, or all with an answer."""
        return self.filters_left or self.answer is not None

    @property
    def counts_right(self) -> bool:
        """Whether the right side's rows and NULLs are counted as a whole."""
        return self.kind in ("not in", "in")

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Inserts only for pairs and matched rows of inputs that only insert."""
        only_added = self.kind in ("inner", "semi")
        return "append" if only_added and all(each == "append" for each in below) else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        if self.kind in ("anti", "not in"):
            return "a row without a match is taken back once a match comes"
        if self.keeps_left:
            return "what this subquery answers changes once a match comes"
        return f"this {self.kind.upper()} JOIN takes back the row padded with NULLs once a match comes"


@dataclass(frozen=True)
class LogicalLookup(LogicalBinary):
    """Each left row with right rows of those that agree in all keys; `pads` says that it is there without any.

    It is one at most, the nearest in time, as `match` says; or where there is none, all that are there when the left
    row comes, and then they are not revised. `condition` are equalities, which become keys. `at` is the JOIN.
    """

    match: TimeMatch | None
    pads: bool
    at: exp.Expr = field(metadata=ASIDE)

    def mode(self, *below: ChangelogMode) -> ChangelogMode:
        """Inserts only for lookups by arrival: a result is never revised. The nearest row in time may change."""
        return "append" if self.match is None and below[0] == "append" else "retract"

    @property
    def changes(self) -> str:
        """Why rows change."""
        return "a row that comes late may be nearer in time than the one that has been met"

    def lets_pass(self, below: AbstractSet[str]) -> AbstractSet[str]:
        """All columns of the left input: the right row that is met depends on all right rows."""
        return below
