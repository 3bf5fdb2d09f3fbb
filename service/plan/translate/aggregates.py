"""Translation of an aggregate to a physical node."""

from __future__ import annotations

from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.operators import PhysicalAggregate
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.missing_watermarks import missing_watermarks
from rowkind.service.plan.traits.partitioning import shard_key
from rowkind.service.plan.translate.first_step import with_first_step
from rowkind.service.plan.translate.nodes import Nodes, carried, named, refreshes, shown, traits


def aggregate(
    nodes: Nodes, aggregate: LogicalAggregate, top: LogicalNode, edge: Edge, record: str
) -> PhysicalAggregate:
    """Translate an aggregate to a physical node whose calc meets the requirements of `edge`."""
    side, below = aggregate.input, columns(aggregate.input.input)
    key = tuple((resolved(name), below[name], True) for name in aggregate.group)
    again = refreshes(side, edge)
    to = Edge(types=carried(side), key=key, refreshes=again, apart=aggregate.apart, arrival=side.arrival)
    node = nodes.input(side, to)
    output = record_of("Row", columns(aggregate))
    calls = tuple(call.named(name, show(call.at)) for name, call in aggregate.calls.items())
    aggregation = Aggregation(
        input=node.calc.output,
        group=aggregate.group,
        calls=calls,
        output=output,
        retracts=produced(side.input) != "append",
        is_global=aggregate.is_global,
        ttl_ms=side.ttl_ms,
        closing=side.closing,
        ending=aggregate.ending,
    )
    return PhysicalAggregate(
        node=nodes.name("aggregate", aggregate),
        input=with_first_step(node, aggregation) if aggregation.adds_up else node,
        aggregation=aggregation,
        calc=nodes.calc(top, edge, output, named(output), record),
        unmarked=missing_watermarks(aggregate),
        traits=traits(top, shown(map(resolved, shard_key(aggregate))), edge.needs_before),
    )
