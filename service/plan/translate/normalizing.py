"""Translation of a Normalize and a SingleRow to physical nodes."""

from __future__ import annotations

from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.physical.operators import PhysicalNormalize, PhysicalSingleRow
from rowkind.service.plan.calcs import Edge
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalSingleRow
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.scalar.types import BIGINT
from rowkind.service.plan.traits.partitioning import shard_key
from rowkind.service.plan.translate.nodes import Nodes, carried, input_state, named, refreshes, shown, traits


def normalize(
    nodes: Nodes, normalize: LogicalNormalize, top: LogicalNode, edge: Edge, record: str
) -> PhysicalNormalize:
    """Translate a Normalize to a physical node whose calc meets the requirements of `edge`."""
    side, below = normalize.input, columns(normalize.input.input)
    key = shard_key(normalize)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in key),
        needs_before=normalize.takes_back and not normalize.key,
        refreshes=refreshes(side, edge),
        rewrites=normalize.arrival is not None,
    )
    node = nodes.input(side, given)
    schema = node.calc.output
    emitted = {**named(schema), **({} if normalize.arrival is None else {normalize.arrival: (ARRIVAL, BIGINT)})}
    return PhysicalNormalize(
        node=nodes.name("expiry" if normalize.takes_back else "normalize", normalize),
        input=node,
        state=input_state(side),
        reason=normalize.reason,
        calc=nodes.calc(top, edge, schema, emitted, record),
        takes_back=normalize.takes_back,
        arrivals=normalize.arrival is not None,
        traits=traits(top, shown(map(resolved, key)), edge.needs_before),
    )


def single_row(nodes: Nodes, single: LogicalSingleRow, top: LogicalNode, edge: Edge, record: str) -> PhysicalSingleRow:
    """Translate a SingleRow to a physical node whose calc meets the requirements of `edge`."""
    side = single.input
    node = nodes.input(side, Edge(types=carried(side), key=(), refreshes=refreshes(side, edge)))
    schema = node.calc.output
    return PhysicalSingleRow(
        node=nodes.name("single_row", single),
        input=node,
        state=input_state(side),
        query=show(single.at),
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, (), edge.needs_before),
    )
