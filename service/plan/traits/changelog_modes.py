"""Changelog modes: what kinds of changes each node puts out.

append {+I}, retract {+I, -U, +U, -D}, or upsert {+I, +U, -D} on a key, which only a table can bring: what an operator
puts out is exact, and a sink drops the old rows that it has no use for.
"""

from __future__ import annotations

from service.plan.logical import Aggregate, Filter, Join, Node, Normalize, Project, Rank, Scan, Union, Window, walk
from service.plan.physical import ChangelogMode


def produced(node: Node) -> ChangelogMode:
    """What a node puts out."""
    match node:
        case Scan():
            return node.source.mode
        case Filter() | Project() | Window():
            return produced(node.input)
        case Join():
            only_added = node.kind in ("inner", "semi")
            return (
                "append" if only_added and all(produced(side.input) == "append" for side in node.sides) else "retract"
            )
        case Aggregate():
            only_added = not node.calls and not node.is_global
            return "append" if only_added and produced(node.input.input) == "append" else "retract"
        case Rank():
            return "append" if _keeps_first(node) and produced(node.input.input) == "append" else "retract"
        case Normalize():
            return "retract"
        case Union():
            return "append" if all(produced(each) == "append" for each in node.inputs) else "retract"


def _keeps_first(node: Rank) -> bool:
    """Whether a row that is out can never be replaced by a later one: the first ones by arrival."""
    arrival = bool(node.order) and node.order[0].column is None and not node.order[0].descending
    return node.function == "row_number" and arrival


def updating(node: Node) -> Node | None:
    """The lowest node that makes the result update or delete rows, None where nothing does."""
    for each in walk(node):
        if produced(each) != "append":
            return each
    return None


def base(node: Node) -> Node:
    """The scan or the operator below filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node
