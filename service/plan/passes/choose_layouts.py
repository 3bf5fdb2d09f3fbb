"""Choose how an operator stores each of its inputs.

one row per key    the operator's key contains a unique key, so each key has at most one row
unique key         there is another unique key, which distinguishes rows with the same key
multiset           no unique key is known, so equal rows are counted
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.unique_keys import in_order, matches_one, unique_keys
from rowkind.service.plan.tree import Rules, rewritten


def choose_layouts(query: Query) -> Query:
    """Choose the layout and the sub-key of each input.

    >>> example(choose_layouts, '''
    ...     SELECT o.order_id, p.paid FROM orders o JOIN payments p ON o.order_id = p.order_id''')
    Join inner keys=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    becomes
    Join inner left.layout=one row per key right.layout=unique key keys=[o.order_id = p.order_id]
        right.sub_key=[p.payment_id]
      Scan orders o
      Scan payments p
    """
    rules: Rules = {LogicalJoin: _join, LogicalLookup: _lookup, LogicalNormalize: _normalize}
    return replace(query, root=rewritten(query.root, rules))


def _join(node: LogicalJoin) -> LogicalJoin:
    return replace(node, left=_chosen(node, node.left), right=_chosen(node, node.right))


def _lookup(node: LogicalLookup) -> LogicalLookup:
    return replace(node, right=_chosen(node, node.right)) if node.match is None else node


def _normalize(node: LogicalNormalize) -> LogicalNormalize:
    return replace(node, input=replace(node.input, layout="one row per key" if node.key else "multiset"))


def _chosen(join: LogicalJoin | LogicalLookup, side: LogicalInput) -> LogicalInput:
    if matches_one(join, side):
        return replace(side, layout="one row per key")
    if keys := unique_keys(side.input):
        return replace(side, layout="unique key", sub_key=in_order(keys, side.input)[0])
    return side
