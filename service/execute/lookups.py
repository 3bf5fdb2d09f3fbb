"""Construction of lookup operators, and conversion of their rows' times to positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.codec import null_row
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.join.input import Side
from rowkind.operators.temporal_join.asof import AsofJoin, AsofJoinSpec, AsofSide
from rowkind.operators.temporal_join.lookup import LookupJoin, LookupJoinSpec
from rowkind.operators.temporal_join.nearest import LAST_PLACE, NOWHERE
from rowkind.operators.temporal_join.versions import Deletes
from rowkind.service.execute.column_times import in_us, until
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.operators import PhysicalLookup
from rowkind.service.physical.time_match import Comparison, TimeMatch


@dataclass(frozen=True)
class PlacesOf:
    """Computes positions of packed rows of `record` from a time or number column (`temporal_join.asof`). Picklable.

    `comparison` compares the left time with the right time. `left` says whether the rows are left rows.
    """

    record: Record
    column: str
    comparison: Comparison
    left: bool

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the position of each row."""
        times = codec.read(self.record, payloads).column(self.column)
        plain = times.cast(pa.int64()).fill_null(0).to_numpy() if pa.types.is_integer(times.type) else in_us(times)
        places = np.clip(plain, -LAST_PLACE, LAST_PLACE) * (-1 if self.comparison in (">=", ">") else 1)
        if self.left and self.comparison in (">", "<"):
            places = places + 1
        return (
            np.where(times.is_valid().to_numpy(zero_copy_only=False), places, NOWHERE) if times.null_count else places
        )


def as_of(node: PhysicalLookup, match: TimeMatch, left: Side, right: Side, refreshes: bool) -> AsofJoin:
    """Return the operator of a lookup by time. `left` and `right` are the properties of its inputs."""
    rows = node.left.calc.output, node.right.calc.output
    places = (
        PlacesOf(row, column, match.comparison, left=number == 0)
        for number, (row, column) in enumerate(zip(rows, (match.left, match.right), strict=True))
    )
    closing = node.left_input.closing
    leaves = (until(rows[0], closing), None) if match.looks_back else (None, until(rows[1], node.right_input.closing))
    own, theirs = (
        AsofSide(of, side.by_seq, side.counts_unmatched, leaves_at)
        for of, side, leaves_at in zip(places, (left, right), leaves, strict=True)
    )
    return AsofJoin(
        AsofJoinSpec(
            own,
            theirs,
            right_pad=null_row(rows[1]) if node.pads else None,
            deletes=_deletes(node) if match.versions else None,
            left_ttl_ms=left.ttl_ms,
            later_us=None if closing is None or closing.kept is None else closing.kept.later_us,
            refreshes=refreshes,
        )
    )


def _deletes(node: PhysicalLookup) -> Deletes:
    """Return how deletes end the versions of a lookup's right side."""
    if not (isinstance(node.right, PhysicalScan) and node.right.source.mode == "upsert"):
        return "with rows"
    return "by key, timed" if node.right.calc.delete_time is not None else "by key"


def by_arrival(node: PhysicalLookup, left: Side, right: Side, refreshes: bool) -> LookupJoin:
    """Return the operator of a lookup by processing time. `left` and `right` are the properties of its inputs."""
    return LookupJoin(
        LookupJoinSpec(
            right,
            right_pad=null_row(node.right.calc.output) if node.pads else None,
            left_by_seq=left.by_seq,
            left_only_comes=node.left.traits.mode == "append" and not refreshes,
            refreshes=refreshes,
        )
    )
