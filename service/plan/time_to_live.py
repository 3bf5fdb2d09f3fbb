"""How long each input of an operator is kept: a STATE_TTL hint, else the table's `ttl`, else the job's."""

from __future__ import annotations

from dataclasses import replace

from service.plan.changelog_modes import base
from service.plan.errors import Refusal
from service.plan.logical import Join, Node, Query, Scan, Side, walk, with_inputs


def limit_time(query: Query) -> Query:
    """Joins with the TTL of each side. Raises Refusal for a hint that names no input."""
    inputs = {_alias(side.input): None for node in walk(query.root) if isinstance(node, Join) for side in node.sides}
    for alias, hint in query.ttl_hints.items():
        if alias not in inputs:
            known = ", ".join(str(name) for name in inputs if name) or "none: this query keeps no state"
            raise Refusal(f"STATE_TTL names {alias!r}, which is no input of a join; inputs are {known}", hint.at)
    return replace(query, root=_visit(query.root, query))


def _visit(node: Node, query: Query) -> Node:
    node = with_inputs(node, lambda child: _visit(child, query))
    if not isinstance(node, Join):
        return node
    return replace(node, left=_limited(node.left, query), right=_limited(node.right, query))


def _limited(side: Side, query: Query) -> Side:
    scan = base(side.input)
    hint = query.ttl_hints.get(_alias(side.input) or "")
    table = scan.source.ttl_ms if isinstance(scan, Scan) else None
    return replace(side, ttl_ms=hint.ttl_ms if hint else table or query.job.ttl)


def _alias(node: Node) -> str | None:
    """The alias by which a hint means this input: the table's. What comes out of a join has none."""
    scan = base(node)
    return scan.path.lower() if isinstance(scan, Scan) else None
