"""The table of plan operators: how each is translated to a physical node, and how `explain` describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalUnion
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalSession,
    PhysicalSingleRow,
    PhysicalStamp,
    PhysicalTemporalFilter,
)
from rowkind.service.plan.explain import aggregates as of_aggregates
from rowkind.service.plan.explain import joins as of_joins
from rowkind.service.plan.explain import matches as of_matches
from rowkind.service.plan.explain import normalizing as of_normalizing
from rowkind.service.plan.explain import over as of_over
from rowkind.service.plan.explain import ranks as of_ranks
from rowkind.service.plan.explain import scans
from rowkind.service.plan.explain import timed as of_timed
from rowkind.service.plan.explain.description import NodeDescription
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalSingleRow, LogicalTemporalFilter
from rowkind.service.plan.translate import aggregates, joins, lookups, matches, normalizing, over, ranks, timed


@dataclass(frozen=True)
class PlannedOperator:
    """An operator's logical and physical nodes, its translation and description functions, and its step kinds."""

    logical: type[LogicalNode]
    physical: type[PhysicalOperator]
    translate: Callable[..., PhysicalOperator]
    describe: Callable[..., NodeDescription]
    kinds: tuple[str, ...]


OPERATORS = (
    PlannedOperator(
        LogicalJoin, PhysicalJoin, joins.join, of_joins.join, ("join", "semi_join", "anti_join", "mark_join")
    ),
    PlannedOperator(LogicalLookup, PhysicalLookup, lookups.lookup, of_joins.lookup, ("asof_join", "lookup")),
    PlannedOperator(LogicalAggregate, PhysicalAggregate, aggregates.aggregate, of_aggregates.aggregate, ("aggregate",)),
    PlannedOperator(LogicalRank, PhysicalRank, ranks.rank, of_ranks.rank, ("rank", "deduplicate")),
    PlannedOperator(LogicalOver, PhysicalOver, over.over, of_over.over, ("over",)),
    PlannedOperator(LogicalMatch, PhysicalMatch, matches.match, of_matches.match, ("match",)),
    PlannedOperator(LogicalSession, PhysicalSession, timed.session, of_timed.session, ("session",)),
    PlannedOperator(LogicalStamp, PhysicalStamp, timed.stamp, of_timed.stamp, ("stamp",)),
    PlannedOperator(
        LogicalTemporalFilter,
        PhysicalTemporalFilter,
        timed.temporal_filter,
        of_timed.temporal_filter,
        ("temporal_filter",),
    ),
    PlannedOperator(
        LogicalNormalize, PhysicalNormalize, normalizing.normalize, of_normalizing.normalize, ("normalize", "expiry")
    ),
    PlannedOperator(
        LogicalSingleRow, PhysicalSingleRow, normalizing.single_row, of_normalizing.single_row, ("single_row",)
    ),
)
KINDS = ("sink", "scan", "union", *(kind for each in OPERATORS for kind in each.kinds))
"""All kinds of steps that an explained plan can contain."""
TRANSLATIONS: Mapping[type[LogicalNode], Callable[..., PhysicalOperator]] = {
    each.logical: each.translate for each in OPERATORS
}
_DESCRIPTIONS: Mapping[type[PhysicalNode], Callable[..., NodeDescription]] = {
    PhysicalScan: scans.scan,
    PhysicalUnion: scans.union,
    **{each.physical: each.describe for each in OPERATORS},
}


def described(node: PhysicalNode) -> NodeDescription:
    """Return the description of a node, which does not depend on the node's consumer."""
    return _DESCRIPTIONS[type(node)](node)
