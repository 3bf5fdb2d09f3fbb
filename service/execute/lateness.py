"""Detection of late changes, which arrive after the watermark has passed all results that they could change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.partial import packed_groups
from rowkind.operators.columns.changes import Changes, Int64s, Mask
from rowkind.operators.columns.rowtime import BEGINNING, END
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.column_times import TimeOf
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.node import PhysicalOperator
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalLookup
from rowkind.service.physical.tree import inputs


def may_be_late(node: PhysicalOperator) -> bool:
    """Return whether changes may be late for an operator. Only a watermark, not the batch time, makes changes late."""
    return any(closing is not None and closing.clock.tables for closing in node.closings)


@dataclass(frozen=True)
class Lateness:
    """Decides which changes are late when they reach an operator. Instances are picklable."""

    node: PhysicalOperator

    def __call__(self, changes: Changes, watermark: int) -> Mask:
        """Return a mask of the changes that are late if the watermark has reached the time `watermark` (in ms)."""
        if watermark == BEGINNING or not len(changes):
            return np.zeros(len(changes), np.bool_)
        late: Mask = self.times(changes) <= watermark
        return late

    def times(self, changes: Changes) -> Int64s:
        """Return the watermark, in ms, at which each change becomes late, or `END` if the change is never late."""
        if isinstance(self.node, PhysicalAggregate):
            return self._of_groups(self.node, changes)
        found = np.full(len(changes), END)
        for side, (closing, below) in enumerate(zip(self.node.closings, inputs(self.node), strict=False)):
            if closing is None:
                continue
            of_side: Mask = changes.side == side
            if self._of_versions(side) or _by_key(below.calc, closing.late.column):
                of_side &= changes.weight > 0
            at = np.flatnonzero(of_side)
            if len(at):
                times = TimeOf(below.calc.output, closing.late)
                found[at] = times(changes.payload.take(pa.array(at)))
        return found

    def _of_versions(self, side: int) -> bool:
        """Return whether the side's rows are versions. Deletes of versions take effect at the watermark, never late."""
        node = self.node
        return side == 1 and isinstance(node, PhysicalLookup) and node.match is not None and node.match.versions

    def _of_groups(self, node: PhysicalAggregate, changes: Changes) -> Int64s:
        aggregation = node.aggregation
        assert aggregation.closing is not None, "the operator evicts rows"
        times = TimeOf(aggregation.output.select(aggregation.group), aggregation.closing.late)
        return times(packed_groups(spec_of(aggregation), changes))


def _by_key(calc: Calc, time: str) -> bool:
    """Return whether deletes may carry only a key, without the output column `time`. They delete the key's row."""
    bring = {
        name for name, each in zip(calc.output.names, calc.columns, strict=True) if each.column in calc.replaced_by
    }
    return bool(calc.replaced_by) and time not in bring
