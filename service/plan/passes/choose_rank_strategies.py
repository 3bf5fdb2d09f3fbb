"""Choose how each rank stores its input.

append       the input only inserts rows, so rows that have dropped out of the range never return
improving    the input replaces rows by a unique key and deletes none, and no replacement moves its row back
retract      any other input, or no upper bound: every row is stored, because any row may move into the range
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.operators.rank.ranking import Strategy
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.monotonic import Monotonic, monotonic
from rowkind.service.plan.tree import bottom_up


def choose_rank_strategies(query: Query) -> Query:
    """Choose how each rank stores its input, and record the reason.

    >>> example(choose_rank_strategies, '''
    ...     SELECT item, bidder FROM bids
    ...     QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) <= 3''')
    Rank row_number 1..3 partition=[bids.item] order=[bids.price DESC] numbers=[…]
      Scan bids
    becomes
    Rank row_number 1..3 strategy=append partition=[bids.item] order=[bids.price DESC] numbers=[…]
      Scan bids
    """
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalRank):
        return node
    if node.ranking.last is None:
        return _by(node, "retract", "without an upper bound, any row may be in the result")
    below = node.input.input
    if produced(below) == "append":
        return _by(node, "append", "its input only inserts, so a row that leaves the range never returns")
    rows = monotonic(below)
    if rows is not None and rows.key is not None and _improves(node, rows):
        reason = (
            "rows are replaced by their unique key and only move towards the front, so a row that has left the range "
            "returns only with its own update"
        )
        return replace(_by(node, "improving", reason), identity=rows.key)
    reason = "its input updates and deletes rows, so any row may move into the range"
    return _by(node, "retract", reason)


def _by(node: LogicalRank, strategy: Strategy, reason: str) -> LogicalRank:
    return replace(node, ranking=replace(node.ranking, strategy=strategy), reason=reason)


def _improves(rank: LogicalRank, rows: Monotonic) -> bool:
    constant = all(rows.directions.get(column) == "constant" for column in rank.partition)
    return (
        rank.ranking.function != "dense_rank" and constant and bool(rank.order) and all(map(rows.improves, rank.order))
    )
