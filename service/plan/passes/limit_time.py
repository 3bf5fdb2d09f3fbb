"""How long each input of an operator is kept: a STATE_TTL hint, else the table's `ttl`, else the job's.

A hint names a table or a derived table by its alias. It holds for the operators that this input goes to first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalInput,
    LogicalJoin,
    LogicalNode,
    LogicalNormalize,
    LogicalRank,
    LogicalScan,
    Query,
    bottom_up,
    walk,
)
from rowkind.service.plan.traits.changelog_modes import base

_LARGEST_NUMBER = 127


def limit_time(query: Query) -> Query:
    """Operators with the TTL of each side. Raises Refusal for a hint that names no input."""
    known = [path for node in walk(query.root) for side in _sides(node) if (path := _path(side.input))]
    for alias, hint in query.ttl_hints.items():
        if not any(_means(alias, path) for path in known):
            shown = ", ".join(dict.fromkeys(known)) or "none: this query keeps no state"
            raise Refusal(f"STATE_TTL names {alias!r}, which is no input of an operator; inputs are {shown}", hint.at)
    return replace(query, root=bottom_up(query.root, partial(_visit, query)))


def _sides(node: LogicalNode) -> tuple[LogicalInput, ...]:
    match node:
        case LogicalJoin():
            return node.sides
        case LogicalAggregate() | LogicalRank() | LogicalNormalize():
            return (node.input,)
    return ()


def _visit(query: Query, node: LogicalNode) -> LogicalNode:
    match node:
        case LogicalJoin(kind="not in"):
            # Of a row that has expired nobody could say whether it is in there.
            return replace(node, left=_limited(node.left, query))
        case LogicalJoin():
            return replace(node, left=_limited(node.left, query), right=_limited(node.right, query))
        case LogicalAggregate(is_global=True):
            return node
        case LogicalAggregate() | LogicalRank() | LogicalNormalize():
            return replace(node, input=_limited(node.input, query))
    return node


def _limited(side: LogicalInput, query: Query) -> LogicalInput:
    below = _below(side.input)
    hints = [hint.ttl_ms for alias, hint in query.ttl_hints.items() if _means(alias, _path(side.input))]
    table = below.source.ttl_ms if isinstance(below, LogicalScan) else None
    return replace(side, ttl_ms=hints[-1] if hints else table or query.job.ttl)


def _below(node: LogicalNode) -> LogicalNode:
    """The scan or operator below; a Normalize stands for its table."""
    node = base(node)
    return base(node.input.input) if isinstance(node, LogicalNormalize) else node


def _path(node: LogicalNode) -> str:
    """The aliases that lead to this input: the table's own, behind those of derived tables around it.

    What comes out of an operator has the alias of the derived table that it is in, or none.
    """
    below = _below(node)
    if isinstance(below, LogicalScan):
        return below.path.lower()
    paths = {name.rpartition(".")[0] for name in columns(node)}
    return paths.pop().lower() if len(paths) == 1 else ""


def _means(alias: str, path: str) -> bool:
    """Whether a hint for `alias` is for this input: the table, or a derived table that is nothing but this table."""
    return f"{path}.".startswith(f"{alias}.")


def check_numbers(query: Query) -> Query:
    """The query unchanged. Raises Refusal for a rank whose rows expire and whose numbers are too large to be kept."""
    for node in walk(query.root):
        if (
            isinstance(node, LogicalRank)
            and node.number is not None
            and node.input.ttl_ms
            and node.ranking.last > _LARGEST_NUMBER
        ):
            raise Refusal(
                f"with a ttl, numbers are kept up to {_LARGEST_NUMBER} only, and this one goes to "
                f"{node.ranking.last}: leave the number out of the result, or take the ttl away by STATE_TTL",
                node.at,
            )
    return query
