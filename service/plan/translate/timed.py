"""Translation of sessions, temporal filters and stamps to physical nodes."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.node import PhysicalInput, PhysicalNode, PhysicalOperator
from rowkind.service.physical.operators import PhysicalSession, PhysicalStamp, PhysicalTemporalFilter
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalSession, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.scalar.types import TIMESTAMP
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.traits.partitioning import partitioning, shard_key
from rowkind.service.plan.translate.nodes import Nodes, carried, named, ordered, refreshes, shown, traits


def session(nodes: Nodes, session: LogicalSession, top: LogicalNode, edge: Edge, record: str) -> PhysicalSession:
    """Translate a session to a physical node whose calc meets the requirements of `edge`."""
    side, below = session.input, columns(session.input.input)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in session.partition),
        refreshes=refreshes(side, edge),
    )
    node = nodes.input(side, given)
    window = {name: columns(session)[name] for name in (session.start, session.end) if name is not None}
    schema = node.calc.output.concat(record_of("Row", window))
    scan = bare_scan(side.input)
    return PhysicalSession(
        node=nodes.name("session", session),
        input=node,
        state=PhysicalInput(
            "multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract", closing=side.closing
        ),
        time=session.time,
        gap=session.gap,
        ends=session.end is not None,
        partition=shown(map(resolved, session.partition)),
        order=show(resolved(session.time)),
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, shown(map(resolved, session.partition)), edge.needs_before),
    )


def temporal_filter(
    nodes: Nodes, passing: LogicalTemporalFilter, top: LogicalNode, edge: Edge, record: str
) -> PhysicalTemporalFilter:
    """Translate a temporal filter to a physical node whose calc meets the requirements of `edge`."""
    node, by = _anywhere(nodes, passing, edge)
    schema = node.calc.output
    return PhysicalTemporalFilter(
        node=nodes.name("temporal_filter", passing),
        input=node,
        clock=passing.clock,
        begins=passing.begins,
        ends=passing.ends,
        reason=passing.reason,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        closing=passing.input.closing,
        most=passing.most,
        order=tuple(map(ordered, passing.order)),
        whole=passing.partition is not None,
        traits=traits(top, by, edge.needs_before),
    )


def stamp(nodes: Nodes, stamp: LogicalStamp, top: LogicalNode, edge: Edge, record: str) -> PhysicalStamp:
    """Translate a stamp to a physical node whose calc meets the requirements of `edge`."""
    node, by = _anywhere(nodes, stamp, edge)
    schema = node.calc.output.concat(record_of("Row", {stamp.time: TIMESTAMP}))
    return PhysicalStamp(
        node=nodes.name("stamp", stamp),
        input=node,
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, by, edge.needs_before),
    )


def _anywhere(
    nodes: Nodes, node: LogicalTemporalFilter | LogicalStamp, edge: Edge
) -> tuple[PhysicalNode, tuple[str, ...]]:
    """Return the input of a node that needs no key, and the columns that choose the shard of each row.

    Later changes of a row must arrive in the row's shard. Rows from an operator below therefore remain in their shards.
    """
    side, below, key = node.input, columns(node.input.input), shard_key(node)
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in key),
        refreshes=refreshes(side, edge),
        arrival=side.arrival,
    )
    below_, by = nodes.input(side, given), shown(map(resolved, key))
    where = partitioning(side.input) if node.partition is None else None
    if isinstance(below_, PhysicalOperator) and where is not None:
        below_ = replace(below_, fused=True)
        by = by if len(by) == len(below_.traits.partition_key) else below_.traits.partition_key
    return below_, by
