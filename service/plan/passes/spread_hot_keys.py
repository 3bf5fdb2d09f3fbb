"""Spread the rows of a hot key, which has very many rows, over several shards if the hint SKEW asks for it.

    SELECT /*+ SKEW('o') */ … FROM orders o JOIN customers c ON …   rows of `o` with the same key are spread over 8
                                                                    shards; rows of `c` are copied to each of them
    SELECT /*+ SKEW('o' = 32) */ …                                  the same over 32 shards
    SELECT /*+ SKEW('o') */ … ROW_NUMBER() OVER (…) … <= 3          ranks in 8 shards, then one rank of their first rows

This is correct if no result depends on rows in other shards. In a join, all rows that a spread row may match are copied
to its shard. But the join must not preserve the copied side, because a shard does not know whether the copies of a row
in other shards have matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rowkind.service.physical.join_kinds import MAY_BE_SPREAD
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank
from rowkind.service.plan.query import Query, SkewHint
from rowkind.service.plan.traits.aliases import alias, means
from rowkind.service.plan.traits.unique_keys import matches_one
from rowkind.service.plan.tree import rewritten, sides, walk


def spread_hot_keys(query: Query) -> Query:
    """Spread the rows of a hot key over several shards if SKEW asks for it.

    Raises Refusal for a hint that cannot be applied.

    >>> example(spread_hot_keys, '''
    ...     SELECT /*+ SKEW('o') */ o.order_id, c.name
    ...     FROM orders o JOIN customers c ON o.customer_id = c.customer_id''')
    Join inner keys=[o.customer_id = c.customer_id]
      Normalize key=[o.order_id]
      Scan customers c
    becomes
    Join inner left.spread=8 right.copies=8 keys=[o.customer_id = c.customer_id]
      Normalize key=[o.order_id]
      Scan customers c
    """
    if not query.skew_hints:
        return query
    known = [found for node in walk(query.root) for side in _spreadable(node) if (found := alias(side.input))]
    for name, hint in query.skew_hints.items():
        if not any(means(name, found) for found in known):
            shown = ", ".join(dict.fromkeys(known)) or "none"
            raise Refusal(
                f"SKEW names {name!r}, which is not an input of a join or a rank; available: {shown}", hint.at
            )
    return replace(
        query,
        root=rewritten(
            query.root, {LogicalJoin: partial(_join, query.skew_hints), LogicalRank: partial(_rank, query.skew_hints)}
        ),
    )


def _spreadable(node: LogicalNode) -> tuple[LogicalInput, ...]:
    # These operators need all rows of a key in one shard.
    alone = LogicalAggregate | LogicalSession | LogicalOver | LogicalLookup | LogicalNormalize | LogicalMatch
    return () if isinstance(node, alone) else sides(node)


def _join(hints: Mapping[str, SkewHint], node: LogicalJoin) -> LogicalJoin:
    left, right = (_hint(side, hints) for side in node.sides)
    if left is not None and right is not None:
        raise Refusal(
            "SKEW cannot name both sides of a join, because one is spread and the other copied: name one side", right.at
        )
    if left is not None:
        return _spread_left(node, left)
    return node if right is None else _spread_right(node, right)


def _rank(hints: Mapping[str, SkewHint], node: LogicalRank) -> LogicalNode:
    hint = _hint(node.input, hints)
    return node if hint is None else _ranked_twice(node, hint)


def _hint(side: LogicalInput, hints: Mapping[str, SkewHint]) -> SkewHint | None:
    found = [hint for name, hint in hints.items() if means(name, alias(side.input))]
    return found[-1] if found else None


def _spread_left(join: LogicalJoin, hint: SkewHint) -> LogicalJoin:
    _check(join, join.left, hint, may=MAY_BE_SPREAD[join.kind][0])
    left, right = replace(join.left, spread=hint.shards), replace(join.right, copies=hint.shards)
    return replace(join, left=left, right=right)


def _spread_right(join: LogicalJoin, hint: SkewHint) -> LogicalJoin:
    _check(join, join.right, hint, may=MAY_BE_SPREAD[join.kind][1])
    left, right = replace(join.left, copies=hint.shards), replace(join.right, spread=hint.shards)
    return replace(join, left=left, right=right)


def _check(join: LogicalJoin, side: LogicalInput, hint: SkewHint, *, may: bool) -> None:
    if not may:
        raise Refusal(
            "SKEW cannot spread this side, because whether a row of the other side has a match depends on all rows of "
            "this side: name either side of an inner join, or the preserved side of another join",
            hint.at,
        )
    if matches_one(join, side):
        raise Refusal("SKEW spreads rows with equal keys, but this side has one row per key: remove the hint", hint.at)


def _ranked_twice(rank: LogicalRank, hint: SkewHint) -> LogicalRank:
    if rank.ranking.strategy != "retract":
        raise Refusal(
            "SKEW is not needed here, because each task sends only rows that may reach the range: remove the hint",
            hint.at,
        )
    if rank.ranking.last is None:
        raise Refusal(
            "SKEW ranks the rows of each shard, and then the first rows of all shards, so the rank number needs an "
            "upper bound: write one, as in WHERE n <= 10, or remove the hint",
            hint.at,
        )
    first = replace(
        rank,
        input=replace(rank.input, spread=hint.shards),
        ranking=replace(rank.ranking, first=1),
        numbers={},
        condition=(),
        asked={},
    )
    return replace(rank, input=LogicalInput(first))
