"""Translation of a lookup to a physical node."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.node import PhysicalInput, PhysicalNode
from rowkind.service.physical.operators import PhysicalLookup
from rowkind.service.plan.calcs import Edge
from rowkind.service.plan.logical.binary import LogicalLookup
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.traits.unique_keys import keeps_key
from rowkind.service.plan.translate.nodes import Nodes, carried, input_state, named, refreshes, shown, traits


def lookup(nodes: Nodes, lookup: LogicalLookup, top: LogicalNode, edge: Edge, record: str) -> PhysicalLookup:
    """Translate a lookup to a physical node whose calc meets the requirements of `edge`."""
    left, right = _side(nodes, lookup, lookup.left, 0, edge), _side(nodes, lookup, lookup.right, 1, edge)
    schema = left.calc.output.concat(right.calc.output)
    return PhysicalLookup(
        node=nodes.name("lookup" if lookup.match is None else "asof_join", lookup),
        left=left,
        right=right,
        left_input=_found_by_content(lookup.left),
        right_input=input_state(lookup.right) if lookup.match is None else _found_by_content(lookup.right),
        match=lookup.match,
        pads=lookup.pads,
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, shown(key.left for key in lookup.keys), edge.needs_before),
    )


def _side(nodes: Nodes, lookup: LogicalLookup, side: LogicalInput, number: int, above: Edge) -> PhysicalNode:
    by_key = number == 1 and lookup.match is None
    # The old row of an update is not needed for versions.
    needs_before = not keeps_key(lookup, side) if by_key else not (number == 1 and _has_versions(lookup))
    edge = Edge(
        types=carried(side),
        key=tuple((key.left if number == 0 else key.right, key.type, key.null_safe) for key in lookup.keys),
        sub_key=tuple((name, False, True) for name in side.sub_key),
        drop_null=number == 1 or not lookup.pads,
        padded=number == 1 and lookup.pads,
        side=number,
        needs_before=needs_before,
        # A lookup result is never revised, so TTL refreshes of the right side are not propagated.
        refreshes=side.ttl_ms is not None if by_key else refreshes(side, above),
        arrival=side.arrival,
        # Without a watermark, a delete by key needs no time: it may end a version at that version's start time.
        times_deletes=number == 1 and _has_versions(lookup) and lookup.left.closing is not None,
    )
    return nodes.input(side, edge)


def _has_versions(lookup: LogicalLookup) -> bool:
    return lookup.match is not None and lookup.match.versions


def _found_by_content(side: LogicalInput) -> PhysicalInput:
    scan = bare_scan(side.input)
    by_seq = scan is not None and scan.source.ordered
    return replace(input_state(side), layout="multiset", by_seq=by_seq, exact=False)
