"""Only columns that somebody further up reads are carried, and only those are read from the topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from service.plan.logical import Filter, Join, Node, Project, Query, Scan, Side, columns, reads


def prune_columns(query: Query) -> Query:
    """Scans with the columns they read, joins with the columns that their rows are made of."""
    return replace(query, root=_prune(query.root, set(query.outputs)))


def _prune(node: Node, wanted: set[str]) -> Node:
    """The node, which need put out no more than `wanted`."""
    match node:
        case Scan():
            return replace(node, used=tuple(each for each in node.used if node.name(each) in wanted))
        case Filter():
            return replace(node, input=_prune(node.input, wanted.union(*map(reads, node.conjuncts))))
        case Project():
            outputs = {name: output for name, output in node.outputs.items() if name in wanted}
            return Project(_prune(node.input, set().union(*map(reads, outputs.values()))), outputs)
        case Join():
            needed = wanted.union(*map(reads, node.condition))
            left = _side(node.left, needed, (reads(key.left) for key in node.keys))
            return replace(node, left=left, right=_side(node.right, needed, (reads(key.right) for key in node.keys)))


def _side(side: Side, needed: set[str], keys: Iterable[set[str]]) -> Side:
    """The side with what is carried through the join; keys and sub-key are read where the side's rows come from."""
    carried = tuple(name for name in columns(side.input) if name in needed)
    return replace(side, carried=carried, input=_prune(side.input, {*carried, *side.sub}.union(*keys)))
