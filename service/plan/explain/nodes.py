"""One description per node of a physical plan: its title, facts, state and advice, in words and as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalScan,
    PhysicalSession,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.plan.explain import aggregates, joins, matches, normalizing, over, ranks, scans, timed
from rowkind.service.plan.explain.description import NodeDescription

_DESCRIPTIONS: Mapping[type[PhysicalNode], Callable[..., NodeDescription]] = {
    PhysicalScan: scans.scan,
    PhysicalJoin: joins.join,
    PhysicalAggregate: aggregates.aggregate,
    PhysicalRank: ranks.rank,
    PhysicalSession: timed.session,
    PhysicalOver: over.over,
    PhysicalLookup: joins.lookup,
    PhysicalNormalize: normalizing.normalize,
    PhysicalTemporalFilter: timed.temporal_filter,
    PhysicalStamp: timed.stamp,
    PhysicalMatch: matches.match,
    PhysicalUnion: scans.union,
}


def described(node: PhysicalNode) -> NodeDescription:
    """What there is to know of a node, whoever consumes it."""
    return _DESCRIPTIONS[type(node)](node)
