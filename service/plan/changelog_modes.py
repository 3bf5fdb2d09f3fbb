"""Changelog modes: what kinds of changes a node puts out, and which of them its consumer must see.

Bottom-up, `produced`: append {+I}, retract {+I, -U, +U, -D}, or upsert {+I, +U, -D} on a key.

Top-down, `check_changelogs`: an upsert stream lacks the old row of an update. That does no harm where its consumer
finds the old row itself, by a key that the update cannot change; elsewhere the old row would stay for ever. Then the
stream must be normalised first, for which there is no operator yet, and the query is refused.
"""

from __future__ import annotations

from service.plan.errors import Refusal
from service.plan.logical import Filter, Join, Node, Project, Query, Scan, Side, reads, walk
from service.plan.physical import ChangelogMode
from service.plan.unique_keys import unique_keys


def produced(node: Node) -> ChangelogMode:
    """What a node puts out."""
    match node:
        case Scan():
            return node.source.mode
        case Filter() | Project():
            return produced(node.input)
        case Join():
            pads = node.pads_left or node.pads_right
            append = all(produced(side.input) == "append" for side in node.sides)
            return "append" if append and not pads else "retract"


def updating(node: Node) -> Node | None:
    """The lowest node that makes the result update or delete rows, None where nothing does."""
    for each in walk(node):
        if produced(each) != "append":
            return each
    return None


def base(node: Node) -> Scan | Join:
    """The scan or the operator below filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node


def check_changelogs(query: Query) -> Query:
    """The query unchanged, or Refusal where a consumer needs old rows that an upsert table does not bring."""
    for node in walk(query.root):
        if isinstance(node, Join):
            for side in node.sides:
                _check_side(node, side)
    scan = base(query.root)
    if isinstance(scan, Scan) and scan.source.mode == "upsert":
        _check_sink(query, scan)
    return query


def _check_side(join: Join, side: Side) -> None:
    scan = base(side.input)
    if not isinstance(scan, Scan) or scan.source.mode != "upsert":
        return
    # Its unique key as the side spells it, which a derived table may have renamed.
    stable = frozenset[str]().union(*unique_keys(side.input))
    assert stable, "a derived table keeps the unique keys of what is below it"
    for key in join.keys:
        own = key.left if side is join.left else key.right
        if not reads(own) <= stable:
            raise Refusal(
                f"{scan.source.table} is an upsert table on ({', '.join(scan.source.primary_key)}), joined on a column "
                f"outside of that key: when the column changes, nothing says which old row to take back. Join on its "
                f"primary key, or let the producer write the table with mode retract",
                own,
            )


def _check_sink(query: Query, scan: Scan) -> None:
    table, key = scan.source.table, ", ".join(scan.source.primary_key)
    sink = query.sink
    if sink.mode == "retract":
        raise Refusal(
            f"{table} is an upsert table, which does not bring the old rows that a retract sink writes: give the sink "
            f"mode upsert and the key ({key})",
            scan.at,
        )
    if sink.mode == "upsert" and frozenset(sink.key) not in unique_keys(query.root):
        raise Refusal(
            f"{table} is an upsert table on ({key}), so its deletes bring no other column: the sink's key "
            f"({', '.join(sink.key)}) must be that one, and the query must select it",
            scan.at,
        )
