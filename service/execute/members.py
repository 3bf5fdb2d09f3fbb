"""The members of a stage: operators that run in one processor, and how changes from outside are addressed to them.

Each member has sides of its own. On its way to the stage a change's side says both: it is the side under which the
member knows it, and `SIDES` times the member's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.operator import Operator

SIDES = 4
"""How many sides a member may have."""

MOST_MEMBERS = 31
"""How many members a stage may have, so that an address fits into the eight bits of a side."""

CalcFunction = Callable[[Rows], Changes]
"""What runs at the exit of an operator: its rows as changes for the consumer."""

Wrap = Callable[[Changes], pa.BinaryArray]
"""The dead letter record of each of these unmatched retractions."""


@dataclass(frozen=True)
class Member:
    """An operator in a stage.

    - `node`: its name in the plan, which labels its counters and begins the names of its state.
    - `calc`: what runs at its exit. `feeds`: the place of the member that takes in what comes out of that; None where
      it leaves the stage.
    - `sides`: what its inputs are called, for errors.
    - `always_runs`: it has something to emit also where there are no changes.
    - `wrap`: makes dead letters of its unmatched retractions.
    """

    node: str
    operator: Operator
    calc: CalcFunction
    feeds: int | None = None
    sides: tuple[str, ...] = ("its input",)
    always_runs: bool = False
    wrap: Wrap | None = None

    def arrangement(self, name: str) -> str:
        """What one of the operator's arrangements is called in the state of the stage. It is part of the checkpoint."""
        return f"{self.node}.{name}"


def address(changes: Changes, member: int) -> Changes:
    """The changes, which have a member's own sides, with its address."""
    return replace(changes, side=changes.side + np.int8(SIDES * member)) if member else changes


def addressed(changes: Changes, member: int) -> Changes:
    """Those of the changes that are for a member, with its own sides."""
    mine = changes.filter(changes.side // SIDES == member)
    return replace(mine, side=mine.side % SIDES) if member else mine
