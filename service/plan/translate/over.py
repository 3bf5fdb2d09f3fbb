"""Translation of an Over to a physical node."""

from __future__ import annotations

from rowkind.service.physical.node import PhysicalInput
from rowkind.service.physical.operators import OrderMeasure, PhysicalOver
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.translate.nodes import Nodes, carried, named, ordered, refreshes, shown, traits


def over(nodes: Nodes, over: LogicalOver, top: LogicalNode, edge: Edge, record: str) -> PhysicalOver:
    """Translate an Over to a physical node whose calc meets the requirements of `edge`."""
    side, below = over.input, columns(over.input.input)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in over.partition),
        sub_key=tuple((each.column, each.descending, each.nulls_first) for each in over.order if each.column),
        refreshes=refreshes(side, edge),
        arrival=side.arrival,
    )
    node = nodes.input(side, given)
    schema = node.calc.output.concat(record_of("Row", {name: call.type for name, call in over.calls.items()}))
    scan, first = bare_scan(side.input), over.order[0]
    return PhysicalOver(
        node=nodes.name("over", over),
        input=node,
        state=PhysicalInput(
            "multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract", closing=side.closing
        ),
        calls=tuple(call.named(name, show(call.at)) for name, call in over.calls.items()),
        measure=None if over.measure is None else OrderMeasure(over.measure, first.descending, first.nulls_first),
        partition=shown(map(resolved, over.partition)),
        order=tuple(map(ordered, over.order)),
        schema=schema,
        ahead=over.ahead,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, shown(map(resolved, over.partition)), edge.needs_before),
    )
