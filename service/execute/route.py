"""The way from a node's exit into its consumer's stage: what the calc makes, addressed to a member and to shards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rowkind.operators.columns.changes import Changes, RowKind, Rows
from rowkind.service.execute import calc
from rowkind.service.execute.members import address
from rowkind.service.physical import Calc


@dataclass(frozen=True)
class Route:
    """A calc, the place of the member that takes its rows in, and how many shards the stage has."""

    calc: Calc
    member: int = 0
    shards: int = 1

    def __call__(self, rows: Rows) -> Changes:
        """The changes that the calc makes of these rows, addressed. Raises ExpressionError."""
        changes = address(calc.run(self.calc, rows), self.member)
        return _to_every_shard(changes, self.shards) if self.calc.key.constant is not None else changes


def _to_every_shard(changes: Changes, shards: int) -> Changes:
    """Each change once for every shard, under a hash that leads there; dead letters stay single."""
    dead = changes.kind == RowKind.DEAD_LETTER
    live = changes.filter(~dead)
    copies = [replace(live, hash=np.full(len(live), shard, np.uint64)) for shard in range(shards)]
    return Changes.concat([*copies, changes.filter(dead)])
