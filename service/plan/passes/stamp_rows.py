"""Choose the shards in which rows are stamped with their processing time, for PROCTIME() as a column.

A retraction would get a different time from the row that it retracts, so the input must only insert rows.

An aggregate over windows of processing time needs the rows of a group in one shard, and all rows of a batch have the
same time. So the other group columns determine the shard in which a row is stamped. The row is aggregated in the same
shard, so nothing is shuffled in between, as with panes (`passes.aggregate_panes`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.types import TIMESTAMP
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.derived_times import is_processing_time
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.partitioning import partitioning
from rowkind.service.plan.tree import rewritten


def stamp_rows(query: Query) -> Query:
    """Stamp rows in the shard in which their group is aggregated. Raises Refusal for rows that may be retracted.

    >>> example(stamp_rows, '''
    ...     SELECT page, COUNT(*) AS n FROM clicks GROUP BY page, window(PROCTIME(), '1 minute')''')
    Aggregate group=[clicks.page, window_1.start] calls=[n: count()]
      …
          Stamp time=proctime_1.proctime
            Scan clicks
    becomes
    Aggregate apart=1 group=[clicks.page, window_1.start] calls=[n: count()]
      …
          Stamp time=proctime_1.proctime partition=[clicks.page]
            Scan clicks
    """
    return replace(query, root=rewritten(query.root, {LogicalStamp: _checked, LogicalAggregate: _of_groups}))


def _checked(node: LogicalStamp) -> LogicalStamp:
    if produced(node.input.input) != "append":
        raise Refusal(
            "PROCTIME() is not available on rows that are updated or deleted: a retraction would have another time "
            "than the row that it retracts. Let the producer write the time at which it sends a row, and use that "
            "column",
            node.at,
        )
    return node


def _of_groups(node: LogicalAggregate) -> LogicalAggregate:
    """Return the aggregate, with each group in the shard in which its rows are stamped, if that is possible."""
    below, times = node.input.input, event_times(node.input.input)
    moves = tuple(name for name in node.group if name in times and is_processing_time(times[name]))
    plain = tuple(name for name in node.group if name not in moves)
    types = columns(below)
    if not plain or node.apart not in (0, len(moves)) or any(types[name] != TIMESTAMP for name in moves):
        return node
    placed = _placed(below, plain)
    if placed is None:
        return node
    return replace(node, input=replace(node.input, input=placed), group=(*plain, *moves), apart=len(moves))


def _placed(node: LogicalNode, names: tuple[str, ...]) -> LogicalNode | None:
    """Return the node, with rows partitioned by these columns when they are stamped; None if that is not possible."""
    match node:
        case LogicalStamp(partition=None) if columns(node.input.input).keys() >= set(names):
            return replace(node, partition=names) if partitioning(node.input.input) is None else None
        case LogicalFilter():
            below = _placed(node.input, names)
        case LogicalExpand() if columns(node.input).keys() >= set(names):
            below = _placed(node.input, names)
        case LogicalProject(stands=False):
            outputs = [node.outputs[name].unnest() for name in names]
            bare = tuple(each.name for each in outputs if isinstance(each, exp.Column))
            below = _placed(node.input, bare) if len(bare) == len(names) else None
        case _:
            return None
    return below and replace(node, input=below)
