"""Translation of a rank to a physical node."""

from __future__ import annotations

from rowkind.service.physical.calc import LocalTopK
from rowkind.service.physical.node import PhysicalInput
from rowkind.service.physical.operators import PhysicalRank
from rowkind.service.plan.calcs import Edge, rank_condition, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.types import INT
from rowkind.service.plan.traits.changelog_modes import bare_scan, base
from rowkind.service.plan.traits.missing_watermarks import missing_watermarks
from rowkind.service.plan.translate.first_step import with_first_step
from rowkind.service.plan.translate.nodes import (
    Nodes,
    carried,
    named,
    ordered,
    refreshes,
    salt,
    salts,
    shown,
    traits,
)


def rank(nodes: Nodes, rank: LogicalRank, top: LogicalNode, edge: Edge, record: str) -> PhysicalRank:
    """Translate a rank to a physical node whose calc meets the requirements of `edge`."""
    side, below = rank.input, columns(rank.input.input)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in rank.partition),
        sub_key=tuple((each.column, each.descending, each.nulls_first) for each in rank.order if each.column),
        refreshes=refreshes(side, edge),
        arrival=side.arrival,
        salt=salt(side),
    )
    node = nodes.input(side, given)
    if _has_local_top_k(rank):
        node = with_first_step(node, LocalTopK(rank.ranking, rank.identity))
    schema = node.calc.output.concat(record_of("Row", dict.fromkeys(rank.numbers, INT)))
    scan = bare_scan(side.input)
    return PhysicalRank(
        node=nodes.name("deduplicate" if rank.ranking.takes_one else "rank", rank),
        input=node,
        state=PhysicalInput(
            "multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract", closing=side.closing
        ),
        ranking=rank.ranking,
        numbers=rank.numbers,
        reason=rank.reason,
        identity=rank.identity,
        partition=shown(map(resolved, rank.partition)),
        order=tuple(map(ordered, rank.order)),
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        condition=rank_condition(rank, node.calc.output, nodes.on_error),
        unmarked=missing_watermarks(rank),
        traits=traits(top, (*shown(map(resolved, rank.partition)), *salts(rank)), edge.needs_before),
    )


def _has_local_top_k(rank: LogicalRank) -> bool:
    """Return whether a row that is outside the rank's range within its batch can never enter the range.

    If groups expire, this is not the case: an expired group may start again with a worse row, which must replace the
    group's old row.
    """
    below = base(rank.input.input)
    return rank.ranking.strategy == "append" or (
        rank.ranking.strategy == "improving" and isinstance(below, LogicalAggregate) and below.input.ttl_ms is None
    )
