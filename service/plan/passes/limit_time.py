"""Set how long operators store each input: by a STATE_TTL hint, else by the table's `ttl`, else by the job's `ttl`.

A hint names a table or a derived table by its alias. It applies to the first operator that reads this input. If all
rows of an input are retracted when they expire (`passes.retract_expired_rows`), the input has no TTL: its rows are
stored until they are retracted.

A node that only delays rows, such as a filter that waits for a watermark, does not change which table's TTL applies to
them. In a union of several tables, the longest of their TTLs applies. The two steps of a split aggregate have the same
TTL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.aliases import alias, means, source
from rowkind.service.plan.traits.changelog_modes import base
from rowkind.service.plan.traits.expiries import all_taken_back, on_expire
from rowkind.service.plan.tree import Rules, rewritten, sides, walk

_LARGEST_NUMBER = 127


def limit_time(query: Query) -> Query:
    """Set the TTL of each input. Raises Refusal for a hint that names no input.

    >>> example(limit_time, '''
    ...     SELECT /*+ STATE_TTL('o' = '1d') */ o.order_id, p.paid
    ...     FROM orders o JOIN payments p ON o.order_id = p.order_id''')
    Join inner keys=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    becomes
    Join inner left.ttl_ms=86400000 right.ttl_ms=43200000 keys=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    """
    known = [path for node in walk(query.root) for side in sides(node) if (path := alias(side.input))]
    for name, hint in query.ttl_hints.items():
        if not any(means(name, path) for path in known):
            shown = ", ".join(dict.fromkeys(known)) or "none, because this query keeps no state"
            raise Refusal(
                f"STATE_TTL names {name!r}, which is not an input of an operator; available: {shown}", hint.at
            )
        if any(means(name, alias(each.input.input)) for each in walk(query.root) if isinstance(each, LogicalMatch)):
            raise Refusal(
                "MATCH_RECOGNIZE has no ttl: write WITHIN after PATTERN to limit how long a match may take", hint.at
            )
    told = any(isinstance(node, LogicalNormalize) and node.takes_back for node in walk(query.root))
    limit = partial(_limited, query, told)
    rules: Rules = {
        LogicalJoin: partial(_join, limit),
        LogicalLookup: partial(_lookup, limit),
        LogicalUnary: partial(_unary, limit),
    }
    return replace(query, root=rewritten(query.root, rules))


_Limit = Callable[[LogicalInput], LogicalInput]


def _join(limit: _Limit, node: LogicalJoin) -> LogicalJoin:
    # Right rows that are counted have no TTL: the count does not show whether it still includes an expired row.
    return replace(node, left=limit(node.left), right=node.right if node.counts_right else limit(node.right))


def _lookup(limit: _Limit, node: LogicalLookup) -> LogicalLookup:
    # A version remains valid for its period, however old it is, and the result of a lookup by arrival is not revised.
    return replace(node, right=limit(node.right)) if node.match is None else replace(node, left=limit(node.left))


def _unary(limit: _Limit, node: LogicalUnary) -> LogicalUnary:
    whole = isinstance(node, LogicalAggregate) and node.is_global
    if isinstance(node, LogicalAggregate) and not whole and _is_second_step(node):
        first = base(node.input.input)
        assert isinstance(first, LogicalAggregate), "the first step is an aggregate"
        return replace(node, input=replace(node.input, ttl_ms=first.input.ttl_ms))
    expires = isinstance(node, LogicalNormalize) and node.takes_back
    return replace(node, input=limit(node.input)) if node.has_ttl and not whole and not expires else node


def _limited(query: Query, told: bool, side: LogicalInput) -> LogicalInput:
    """Return the side with its TTL. `told` is true if any rows of the query are retracted when they expire."""
    called = alias(side.input)
    hints = [
        hint.ttl_ms
        for name, hint in query.ttl_hints.items()
        if means(name, called) and on_expire(query, hint, side.input) == "forget"
    ]
    if told and not hints and all_taken_back(side.input):
        return side
    return replace(side, ttl_ms=hints[-1] if hints else _declared(side.input, query))


def _declared(node: LogicalNode, query: Query) -> int | None:
    """Return a node's TTL; None means no TTL.

    This is the TTL of the node's table or, for a union, the longest TTL of its inputs; otherwise it is the job's TTL.
    """
    below = source(node)
    if isinstance(below, LogicalUnion):
        each = [_declared(one, query) for one in below.inputs]
        return None if None in each else max(own for own in each if own is not None)
    own = below.source.ttl_ms if isinstance(below, LogicalScan) else None
    return query.job.ttl if own is None else own


def _is_second_step(node: LogicalAggregate) -> bool:
    """Whether an aggregate is the second of two steps, the first of which is below it (`passes.split_distinct`)."""
    partial = any(name.endswith(("#first", "#between")) for call in node.calls.values() for name in call.arguments)
    return isinstance(base(node.input.input), LogicalAggregate) and (partial or node.split_distinct)


def check_numbers(query: Query) -> Query:
    """Check that ranks with a TTL can store their row numbers. Raises Refusal for row numbers that are too large.

    >>> example(check_numbers, '''
    ...     SELECT /*+ UNBOUNDED_RANK */ order_id, RANK() OVER (PARTITION BY status ORDER BY amount) AS n
    ...     FROM orders''')
    Refusal: with a ttl, row numbers are supported only up to 127, but this one has no upper bound: remove the
    number from the result, or retract expired rows with `on_expire: retract`
    """
    for node in walk(query.root):
        if not (isinstance(node, LogicalRank) and node.numbers and node.input.ttl_ms):
            continue
        last = node.ranking.last if node.ranking.settled is None else node.ranking.settled + 1
        if last is None or last > _LARGEST_NUMBER:
            raise Refusal(
                f"with a ttl, row numbers are supported only up to {_LARGEST_NUMBER}, but this one "
                f"{'has no upper bound' if last is None else f'goes up to {last}'}: remove the number from the "
                f"result, or retract expired rows with `on_expire: retract`",
                node.at,
            )
    return query
