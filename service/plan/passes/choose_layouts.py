"""How an operator keeps each of its inputs.

one row per key    the operator's key contains a unique key: at most one row under each key
unique key         there is a unique key besides: rows under one key are told apart by it
multiset           no unique key is known: equal rows are counted
"""

from __future__ import annotations

from dataclasses import replace

from service.plan.logical import Join, Node, Normalize, Query, Side, bottom_up
from service.plan.traits.unique_keys import in_order, matches_one, unique_keys


def choose_layouts(query: Query) -> Query:
    """Operators with the layout and sub-key of each side."""
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: Node) -> Node:
    match node:
        case Join():
            return replace(node, left=_chosen(node, node.left), right=_chosen(node, node.right))
        case Normalize():
            return replace(node, input=replace(node.input, layout="one row per key" if node.key else "multiset"))
    return node


def _chosen(join: Join, side: Side) -> Side:
    if matches_one(join, side):
        return replace(side, layout="one row per key")
    if keys := unique_keys(side.input):
        return replace(side, layout="unique key", sub=in_order(keys, side.input)[0])
    return side
