"""What goes by time in a logical plan, as in the physical plan: sessions and temporal filters."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service import physical
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import LogicalNode, LogicalSession, LogicalTemporalFilter
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.traits.partitioning import partitioning, temporal_key
from rowkind.service.plan.translate.nodes import Nodes, carried, named, ordered, refreshes, shown, traits


def session(
    nodes: Nodes, session: LogicalSession, top: LogicalNode, edge: Edge, record: str
) -> physical.PhysicalSession:
    """The physical node of a session; its calc leads to where `edge` says."""
    side, below = session.input, columns(session.input.input)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in session.partition),
        refreshes=refreshes(side, edge),
    )
    node = nodes.input(side, given)
    schema = node.calc.output.concat(record_of("Row", {session.start: columns(session)[session.start]}))
    scan = bare_scan(side.input)
    return physical.PhysicalSession(
        node=nodes.name("session", session),
        input=node,
        state=physical.PhysicalInput(
            "multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract", closing=side.closing
        ),
        time=session.time,
        gap=session.gap,
        partition=shown(map(resolved, session.partition)),
        order=show(resolved(session.time)),
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, shown(map(resolved, session.partition)), edge.needs_before),
    )


def temporal_filter(
    nodes: Nodes, passing: LogicalTemporalFilter, top: LogicalNode, edge: Edge, record: str
) -> physical.PhysicalTemporalFilter:
    """The physical node of a temporal filter; its calc leads to where `edge` says."""
    side, below = passing.input, columns(passing.input.input)
    key = temporal_key(passing)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in key),
        refreshes=refreshes(side, edge),
    )
    node = nodes.input(side, given)
    by = shown(map(resolved, key))
    where = partitioning(side.input) if passing.partition is None else None
    if isinstance(node, physical.PhysicalOperator) and where is not None:
        # An agenda does not ask for keys: a row is taken back in the shard in which it came.
        node = replace(node, fused=True)
        by = by if len(by) == len(node.traits.partition_key) else node.traits.partition_key
    schema = node.calc.output
    return physical.PhysicalTemporalFilter(
        node=nodes.name("temporal_filter", passing),
        input=node,
        clock=passing.clock,
        begins=passing.begins,
        ends=passing.ends,
        reason=passing.reason,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        closing=side.closing,
        most=passing.most,
        order=tuple(map(ordered, passing.order)),
        whole=passing.partition is not None,
        traits=traits(top, by, edge.needs_before),
    )
