"""How long each input of an operator is kept: a STATE_TTL hint, else the table's `ttl`, else the job's.

A hint names a table or a derived table by its alias. It holds for the operators that this input goes to first. Where
all rows that come are taken back when they expire (`passes.take_back_expired`), an input is kept as long as they come.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalInput,
    LogicalJoin,
    LogicalLookup,
    LogicalMatch,
    LogicalNode,
    LogicalNormalize,
    LogicalRank,
    LogicalScan,
    LogicalSession,
)
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.aliases import alias, means, sides, source
from rowkind.service.plan.traits.expiries import all_taken_back, on_expire
from rowkind.service.plan.tree import bottom_up, walk

_LARGEST_NUMBER = 127


def limit_time(query: Query) -> Query:
    """Operators with the TTL of each side. Raises Refusal for a hint that names no input."""
    known = [path for node in walk(query.root) for side in sides(node) if (path := alias(side.input))]
    for name, hint in query.ttl_hints.items():
        if not any(means(name, path) for path in known):
            shown = ", ".join(dict.fromkeys(known)) or "none: this query keeps no state"
            raise Refusal(f"STATE_TTL names {name!r}, which is no input of an operator; inputs are {shown}", hint.at)
        if any(means(name, alias(each.input.input)) for each in walk(query.root) if isinstance(each, LogicalMatch)):
            raise Refusal("MATCH_RECOGNIZE has no ttl: say WITHIN behind PATTERN how long a match may take", hint.at)
    told = any(isinstance(node, LogicalNormalize) and node.takes_back for node in walk(query.root))
    return replace(query, root=bottom_up(query.root, partial(_visit, query, told)))


def _visit(query: Query, told: bool, node: LogicalNode) -> LogicalNode:
    match node:
        case LogicalJoin(counts_right=True):
            # Of a row that has expired nobody could say whether it is in there.
            return replace(node, left=_limited(node.left, query, told))
        case LogicalJoin():
            return replace(node, left=_limited(node.left, query, told), right=_limited(node.right, query, told))
        case LogicalLookup():
            # The row that is valid at a time is so however old it is, and what a row has met stays what it was.
            limited = (node.left, _limited(node.right, query, told)), (_limited(node.left, query, told), node.right)
            left, right = limited[node.match is not None]
            return replace(node, left=left, right=right)
        case LogicalAggregate(is_global=True) | LogicalNormalize(takes_back=True):
            return node
        case LogicalAggregate() | LogicalRank() | LogicalSession() | LogicalNormalize():
            return replace(node, input=_limited(node.input, query, told))
    return node


def _limited(side: LogicalInput, query: Query, told: bool) -> LogicalInput:
    """The side with its TTL; `told` says that some rows of the query are taken back when they expire."""
    below, called = source(side.input), alias(side.input)
    hints = [
        hint.ttl_ms
        for name, hint in query.ttl_hints.items()
        if means(name, called) and on_expire(query, hint, side.input) == "forget"
    ]
    if told and not hints and all_taken_back(side.input):
        return side
    table = below.source.ttl_ms if isinstance(below, LogicalScan) else None
    return replace(side, ttl_ms=hints[-1] if hints else table or query.job.ttl)


def check_numbers(query: Query) -> Query:
    """The query unchanged. Raises Refusal for a rank whose rows expire and whose numbers are too large to be kept."""
    for node in walk(query.root):
        if not (isinstance(node, LogicalRank) and node.numbers and node.input.ttl_ms):
            continue
        last = node.ranking.last if node.settled is None else node.settled + 1
        if last is None or last > _LARGEST_NUMBER:
            raise Refusal(
                f"with a ttl, numbers are kept up to {_LARGEST_NUMBER} only, and this one goes "
                f"{'on without end' if last is None else f'to {last}'}: leave the number out of the result, or take "
                f"the ttl away by STATE_TTL",
                node.at,
            )
    return query
