"""Retract expired rows from all results: a row whose TTL is over is retracted if `on_expire: retract` says so.

A Normalize with a clock is added above each such table, or at the input that a hint names. It alone applies the TTL: it
emits the rows that are alive. So operators that read only such rows have no TTL, and their result is that of the SQL
over the rows that are alive. The TTL of rows from other tables, which are dropped silently, applies as everywhere.

As the Normalize stores rows by their key, it also finds the old rows that a table does not send.
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
        """Return a node with everything below it, with a Normalize wherever rows must be retracted."""
        scan = base(node)
        if isinstance(scan, LogicalScan):
            ttl = scan.source.ttl_ms or self.query.job.ttl
            return _told(node, ttl) if ttl and on_expire(self.query, None, scan) == "retract" else node
        if isinstance(node, LogicalLookup) and node.match is not None and node.match.versions:
            # A version stays valid at its time, however old it is, and versions must arrive as they were sent.
            return replace(node, left=replace(node.left, input=self._input(hints, node.left.input)))
        if sides(node):
            return with_inputs(node, partial(self._input, hints))
        return with_inputs(node, lambda each: self.below(each, hints))

    def _input(self, hints: Mapping[str, TtlHint], node: LogicalNode) -> LogicalNode:
        """Return the input of an operator, which may have its own hint."""
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
    """Return the node over rows that are retracted when they expire.

    For a table, these are the rows that pass the filters right above it; what is computed from them need not keep the
    key. For the output of an operator, they are the rows that its consumer receives.
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
    """Return the node over a table that is not exact if it has no key: a row may have expired when it is retracted.

    Such a retraction must not remove a row that looks like its own, or one that comes after it.
    """
    if isinstance(node, LogicalFilter):
        return over(node, _may_retract_unsent(node.input))
    if isinstance(node, LogicalScan) and not node.source.primary_key:
        return replace(node, source=replace(node.source, exact=False))
    return node


def _filtered(node: LogicalNode) -> bool:
    """Whether these are rows of a table or an operator, with nothing but filters above."""
    while isinstance(node, LogicalFilter):
        node = node.input
    return not isinstance(node, LogicalProject | LogicalExpand | LogicalTemporalFilter)
