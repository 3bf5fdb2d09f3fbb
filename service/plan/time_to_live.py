"""How long each input of an operator is kept: a STATE_TTL hint, else the table's `ttl`, else the job's."""

from __future__ import annotations

from dataclasses import replace

from service.plan.changelog_modes import base
from service.plan.errors import Refusal
from service.plan.logical import Join, Node, Query, Scan, Side, walk, with_inputs


def limit_time(query: Query) -> Query:
    """Joins with the TTL of each side. Raises Refusal for a hint that names no input."""
    inputs = [_path(side.input) for node in walk(query.root) if isinstance(node, Join) for side in node.sides]
    for alias, hint in query.ttl_hints.items():
        if not any(_means(alias, path) for path in inputs):
            known = ", ".join(path for path in inputs if path) or "none: this query keeps no state"
            raise Refusal(f"STATE_TTL names {alias!r}, which is no input of a join; inputs are {known}", hint.at)
    return replace(query, root=_visit(query.root, query))


def _visit(node: Node, query: Query) -> Node:
    node = with_inputs(node, lambda child: _visit(child, query))
    if not isinstance(node, Join):
        return node
    return replace(node, left=_limited(node.left, query), right=_limited(node.right, query))


def _limited(side: Side, query: Query) -> Side:
    scan = base(side.input)
    hints = [hint.ttl_ms for alias, hint in query.ttl_hints.items() if _means(alias, _path(side.input))]
    table = scan.source.ttl_ms if isinstance(scan, Scan) else None
    return replace(side, ttl_ms=hints[-1] if hints else table or query.job.ttl)


def _path(node: Node) -> str:
    """The aliases that lead to this input: the table's own, behind those of derived tables around it.

    What comes out of a join has none.
    """
    scan = base(node)
    return scan.path.lower() if isinstance(scan, Scan) else ""


def _means(alias: str, path: str) -> bool:
    """Whether a hint for `alias` is for this input: the table, or a derived table that is nothing but this table."""
    return f"{path}.".startswith(f"{alias}.")
