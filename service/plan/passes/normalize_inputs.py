"""Add a Normalize where a consumer needs old rows that a table does not send.

An upsert table never sends the row that an update replaces. A retract table with a primary key may send a +U without a
-U, or retract a row that it never sent, unless the job marks the table as exact. This does no harm if the consumer
finds the old row itself, by a key that no update can change (FLINK-38579 shows what happens otherwise). In other cases,
the old row would remain in the result indefinitely. A Normalize between the table and the consumer then stores the
table's rows and adds the missing old rows.

A retract table without a primary key may also retract rows that it never sent. A join or a rank detects such
retractions, because it finds rows by their content (`passes.add_row_digests`). An aggregate, a union or a retract topic
cannot detect them, so it needs a Normalize.

Such a table also needs a Normalize if equal rows may differ in bytes, because the query reads a DOUBLE, which may be
0.0 or -0.0, or a map, whose entries may be in any order. A row digest does not help: equal rows have equal digests, but
an operator that finds rows by their content also compares the bytes of the columns that it carries.

A table that a truncation empties always gets a Normalize, because only an operator that stores all rows knows which
rows a truncation deletes.

A node that splits a row into several rows also needs the old row, because each part of the old row must be retracted.
The parts of a row that was never sent must not be retracted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.passes.prune_columns import prune_columns
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.traits.unique_keys import in_order, keeps_key, unique_keys
from rowkind.service.plan.tree import Rules, rewritten, walk, with_inputs


def normalize_inputs(query: Query) -> Query:
    """Add a Normalize above each table whose consumer needs old rows that the table does not send.

    Raises Refusal for a lookup by time that reads versions of a table that may be truncated.

    >>> example(normalize_inputs, "SELECT country, COUNT(*) AS n FROM customers GROUP BY country")
    Scan customers
    becomes
    Normalize key=[customers.customer_id]
      Scan customers
    """
    varied = _varied(query)
    rules: Rules = {
        LogicalJoin: partial(_join, varied),
        LogicalLookup: partial(_lookup, varied),
        LogicalUnary: partial(_unary, varied),
        LogicalExpand: partial(_whole, "each row is split into several rows"),
        LogicalUnion: partial(_whole, "a union has no key by which a new row could replace the old one"),
    }
    root = rewritten(_emptied(query.root), rules)
    reason = _needed_by_sink(query, root)
    return replace(query, root=_normalized(root, reason) if reason else root)


def _emptied(node: LogicalNode) -> LogicalNode:
    """Return the node with a Normalize above each table that a truncation empties, so that its rows are retracted."""
    versions = isinstance(node, LogicalLookup) and node.match is not None and node.match.versions
    if isinstance(node, LogicalLookup) and versions and _truncates(node.right.input):
        raise Refusal(
            "FOR SYSTEM_TIME AS OF a time of the row cannot read a table with `on_truncate: empty`: a truncation does "
            "not say at which time the versions end. Set `on_truncate: refuse` for this table"
        )
    if isinstance(node, LogicalNormalize) and _truncates(node.input.input):
        return node
    if isinstance(node, LogicalScan | LogicalFilter) and _truncates(node) and not _projected(node):
        return _normalized(node, "a truncation retracts all rows")
    return with_inputs(node, _emptied)


def _truncates(node: LogicalNode) -> bool:
    """Whether the node passes on the rows of a table that a truncation empties."""
    scan = bare_scan(node)
    return scan is not None and scan.source.truncates


def _projected(node: LogicalNode) -> bool:
    """Whether a projection, which may drop the key, is below the node's filters."""
    while isinstance(node, LogicalFilter):
        node = node.input
    return isinstance(node, LogicalProject)


def _varied(query: Query) -> frozenset[str]:
    """Return the paths of the scans that read a column whose equal values may differ in bytes."""
    scans = (node for node in walk(prune_columns(query).root) if isinstance(node, LogicalScan))
    return frozenset(scan.path for scan in scans if any(scan.source.declared.type(name).varies for name in scan.used))


def _join(varied: frozenset[str], node: LogicalJoin) -> LogicalJoin:
    left = _join_side(varied, node, node.left)
    if not node.counts_right:
        return replace(node, left=left, right=_join_side(varied, node, node.right))
    right = _side(varied, node.right, f"{node.kind.upper()} counts rows and NULLs", counted=True)
    return replace(node, left=left, right=right)


def _unary(varied: frozenset[str], node: LogicalUnary) -> LogicalUnary:
    if node.finds_old_rows is None:
        return node
    reason, counted = node.finds_old_rows
    return replace(node, input=_side(varied, node.input, reason, counted=counted))


def _whole(reason: str, node: LogicalExpand | LogicalUnion) -> LogicalNode:
    """Return a stateless node, with a Normalize below it wherever an input is not exact."""
    return with_inputs(node, lambda below: _normalized(below, reason) if _is_inexact(below) else below)


def _is_inexact(node: LogicalNode) -> bool:
    return leaves_out_old_rows(node) or _unchecked(node)


def _lookup(varied: frozenset[str], node: LogicalLookup) -> LogicalLookup:
    left = _side(varied, node.left, "a lookup finds rows by their content", counted=False)
    if node.match is None:
        return replace(node, left=left, right=_join_side(varied, node, node.right))
    if node.match.versions:
        return replace(node, left=left)
    return replace(
        node, left=left, right=_side(varied, node.right, "a lookup finds rows by their content", counted=False)
    )


def _side(varied: frozenset[str], side: LogicalInput, reason: str, *, counted: bool) -> LogicalInput:
    if leaves_out_old_rows(side.input) or (counted and _unchecked(side.input)):
        return replace(side, input=_normalized(side.input, reason))
    return _alike(varied, side)


def _alike(varied: frozenset[str], side: LogicalInput) -> LogicalInput:
    """Return the side, with a Normalize added if the side's equal rows may differ in bytes."""
    scan = bare_scan(side.input)
    if scan is None or scan.path not in varied or scan.source.primary_key or not _unchecked(side.input):
        return side
    return replace(side, input=_normalized(side.input, "equal doubles and equal maps may have different bytes"))


def finds_old_rows(join: LogicalJoin | LogicalLookup, side: LogicalInput) -> bool:
    """Whether a join receives the old row of each update on this side, or can find the old row itself."""
    return not leaves_out_old_rows(side.input) or keeps_key(join, side)


def _join_side(varied: frozenset[str], join: LogicalJoin | LogicalLookup, side: LogicalInput) -> LogicalInput:
    if finds_old_rows(join, side):
        return _alike(varied, side)
    return replace(side, input=_normalized(side.input, "an update may change the key of the join"))


def leaves_out_old_rows(node: LogicalNode) -> bool:
    """Whether the node's updates may arrive without the old row."""
    scan = bare_scan(node)
    return scan is not None and scan.source.replaces and not scan.source.exact and not is_empty(node)


def _unchecked(node: LogicalNode) -> bool:
    """Whether the node may retract rows that it never sent."""
    scan = bare_scan(node)
    return scan is not None and scan.source.may_retract_unsent and not is_empty(node)


def _needed_by_sink(query: Query, root: LogicalNode) -> str:
    if query.sink.mode == "retract" and leaves_out_old_rows(root):
        return "a retract sink writes old rows"
    if query.sink.mode == "retract" and _unchecked(root):
        return "a retract sink may retract only rows that it has emitted"
    if query.sink.mode == "upsert" and leaves_out_old_rows(root) and frozenset(query.sink.key) not in unique_keys(root):
        return "the sink's key differs from the table's key"
    return ""


def _normalized(node: LogicalNode, reason: str) -> LogicalNode:
    """Return the node with a Normalize above its filters and below its projections, which may drop the key."""
    if isinstance(node, LogicalProject):
        return replace(node, input=_normalized(node.input, reason))
    keys = in_order(unique_keys(node), node)
    return LogicalNormalize(LogicalInput(node), keys[0] if keys else (), reason)
