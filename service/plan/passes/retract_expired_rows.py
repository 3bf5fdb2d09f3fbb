"""Retract expired rows, and everything derived from them, if `on_expire: retract` is set.

A Normalize with a clock is added above each table to which this applies, or above the input that a hint names. Only
this Normalize applies the TTL: its output contains the rows that have not expired. So operators that read only the
output of such Normalizes have no TTL, and their result equals that of the SQL over the rows that have not expired. Rows
of other tables are dropped silently when they expire, and their TTL applies in every operator as usual.

Because the Normalize stores rows by key, it also finds the old rows that a table does not send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from rowkind.service.plan.logical.binary import LogicalLookup
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.query import Query, TtlHint
from rowkind.service.plan.traits.aliases import alias, means
from rowkind.service.plan.traits.changelog_modes import base
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.traits.expiries import on_expire, table
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.tree import over, sides, with_inputs


def retract_expired_rows(query: Query) -> Query:
    """Add a Normalize that retracts rows when they expire, wherever `on_expire: retract` asks for it.

    >>> example(retract_expired_rows, "SELECT country, COUNT(*) AS n FROM customers GROUP BY country",
    ...     on_expire="retract")
    Scan customers
    becomes
    Normalize takes_back input.ttl_ms=2592000000 key=[customers.customer_id]
      Scan customers
    """
    return replace(query, root=_Placing(query).below(query.root, query.ttl_hints))


@dataclass(frozen=True)
class _Placing:
    query: Query

    def below(self, node: LogicalNode, hints: Mapping[str, TtlHint]) -> LogicalNode:
        """Return the node with a Normalize added below it wherever expired rows must be retracted."""
        scan = base(node)
        if isinstance(scan, LogicalScan):
            ttl = scan.source.ttl_ms or self.query.job.ttl
            return _told(node, ttl) if ttl and on_expire(self.query, None, scan) == "retract" else node
        if isinstance(node, LogicalLookup) and node.match is not None and node.match.versions:
            # A version remains valid for its period, however old it is, and versions must arrive as they were sent.
            return replace(node, left=replace(node.left, input=self._input(hints, node.left.input)))
        if sides(node):
            return with_inputs(node, partial(self._input, hints))
        return with_inputs(node, lambda each: self.below(each, hints))

    def _input(self, hints: Mapping[str, TtlHint], node: LogicalNode) -> LogicalNode:
        """Return an operator's input, with a Normalize wherever expired rows must be retracted.

        One of the hints may name this input.
        """
        is_table, called = table(node) is not None, alias(node)
        names = [name for name in hints if (means(name, called) if is_table else name == called)]
        if not names:
            return self.below(node, hints)
        hint = hints[names[-1]]
        told = on_expire(self.query, hint, node) == "retract"
        if is_table:
            return _told(node, hint.ttl_ms) if told else node
        below = self.below(node, {name: hint for name, hint in hints.items() if name not in names})
        return _told(below, hint.ttl_ms) if told else below


def _told(node: LogicalNode, ttl_ms: int) -> LogicalNode:
    """Return the node with a Normalize that retracts rows when they expire.

    The Normalize is added above the filters of a table or an operator, and below projections, which may drop the key.
    """
    if is_empty(node):
        return node
    if isinstance(node, LogicalTemporalFilter) and table(node) is not None:
        return replace(node, input=replace(node.input, input=_told(node.input.input, ttl_ms)))
    if isinstance(node, LogicalProject | LogicalExpand) or (isinstance(node, LogicalFilter) and not _filtered(node)):
        return replace(node, input=_told(node.input, ttl_ms))
    keys = in_order(unique_keys(node), node)
    reason = "rows derived from an expired row are retracted with it"
    return LogicalNormalize(
        LogicalInput(_may_retract_unsent(node), ttl_ms=ttl_ms), keys[0] if keys else (), reason, takes_back=True
    )


def _may_retract_unsent(node: LogicalNode) -> LogicalNode:
    """Return the node, with its table marked as not exact if the table has no key.

    A row may have expired before its retraction arrives. The retraction must then not remove an equal row, nor an equal
    row that arrives later.
    """
    if isinstance(node, LogicalFilter):
        return over(node, _may_retract_unsent(node.input))
    if isinstance(node, LogicalScan) and not node.source.primary_key:
        return replace(node, source=replace(node.source, exact=False))
    return node


def _filtered(node: LogicalNode) -> bool:
    """Whether the node is a table or an operator, possibly below filters."""
    while isinstance(node, LogicalFilter):
        node = node.input
    return not isinstance(node, LogicalProject | LogicalExpand | LogicalTemporalFilter)
