"""Missing watermarks: watermarks that would bound an operator's state if the tables declared them.

Aggregates and ranks by a window, joins of windows, and interval joins keep their rows indefinitely if there is no
watermark on the time that the window or the interval uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.traits.derived_times import PROCESSING, TimeColumn
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.time_bounds import time_bounds
from rowkind.service.plan.tree import walk

_Origins = frozenset[TimeColumn]


def missing_watermarks(node: LogicalAggregate | LogicalRank | LogicalJoin) -> tuple[str, ...]:
    """Return the fewest columns, such as `sales.at`, that need a watermark; empty if no watermark would help."""
    sources = {each.source.table: each.source for each in walk(node) if isinstance(each, LogicalScan)}
    marks = {name: source.watermark.subject for name, source in sources.items() if source.watermark is not None}
    found = []
    for origins in _bounding(node):
        if PROCESSING in origins:
            # Processing time needs no watermark, and no clock follows both processing time and a watermark.
            continue
        lacking = sorted(each for each in origins if marks.get(each.table) != each.column)
        # A table has at most one watermark, and it must be on a TIMESTAMP.
        if all(each.table not in marks and _is_timestamp(sources[each.table], each.column) for each in lacking):
            found.append(tuple(f"{each.table}.{each.column}" for each in lacking))
    return min(found, key=len, default=())


def _is_timestamp(source: SourceTable, column: str) -> bool:
    return column in source.declared.names and family(source.declared.type(column)) in ("timestamp", "local")


def _bounding(node: LogicalAggregate | LogicalRank | LogicalJoin) -> Iterator[_Origins]:
    """Yield alternative sets of table times. Watermarks on all times of any one set would evict the operator's rows."""
    if isinstance(node, LogicalJoin):
        yield from () if node.counts_right else _joined(node)
    else:
        times = event_times(node.input.input)
        keys = node.partition if isinstance(node, LogicalRank) else node.group
        yield from (times[name].origins for name in keys if name in times)


def _joined(join: LogicalJoin) -> Iterator[_Origins]:
    left, right = event_times(join.left.input), event_times(join.right.input)
    for key in join.keys:
        a, b = key.left.unnest(), key.right.unnest()
        if isinstance(a, exp.Column) and isinstance(b, exp.Column) and a.name in left and b.name in right:
            yield left[a.name].origins | right[b.name].origins
    for bounds in time_bounds(join, left.keys(), right.keys()):
        if bounds.whole:
            yield left[bounds.left].origins | right[bounds.right].origins
