"""The way from a calc into the consumer's stage: to which of its operators, and to which shards.

Several operators may run in one stage, each with sides of its own. On the way there, the side says both: it is the
side under which the operator knows it, and `SIDES` times the operator's place in the stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from operators.changes import Changes, RowKind, Rows
from service import calc
from service.plan.physical import Calc

SIDES = 4
"""How many sides an operator may have."""

MOST_MEMBERS = 31
"""How many operators a stage may have, so that a side still fits into its eight bits."""


@dataclass(frozen=True)
class Route:
    """A calc, the place of the operator that takes its rows in, and how many shards that has."""

    calc: Calc
    member: int = 0
    shards: int = 1

    def __call__(self, rows: Rows) -> Changes:
        """The changes that the calc makes of these rows, addressed. Raises ExpressionError."""
        changes = calc.run(self.calc, rows)
        if self.member:
            changes = replace(changes, side=(changes.side + np.int8(SIDES * self.member)).astype(np.int8))
        return _to_every_shard(changes, self.shards) if self.calc.key.constant is not None else changes


def addressed(changes: Changes, member: int) -> Changes:
    """Those of the changes that are for the operator at this place, with the sides under which it knows them."""
    mine = changes.filter(changes.side // SIDES == member)
    return replace(mine, side=mine.side % SIDES) if member else mine


def _to_every_shard(changes: Changes, shards: int) -> Changes:
    """Each change once for every shard, under a hash that leads there; dead letters stay single."""
    dead = changes.kind == RowKind.DEAD_LETTER
    live = changes.filter(~dead)
    copies = [replace(live, hash=np.full(len(live), shard, np.uint64)) for shard in range(shards)]
    return Changes.concat([*copies, changes.filter(dead)])
