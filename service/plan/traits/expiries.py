"""Row expiry: whether expired rows are dropped silently, or retracted with everything derived from them."""

from __future__ import annotations

from rowkind.service.physical.source_table import OnExpire
from rowkind.service.plan.logical.binary import LogicalLookup
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.query import Query, TtlHint
from rowkind.service.plan.traits.aliases import source
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.tree import inputs


def table(node: LogicalNode) -> LogicalScan | None:
    """Return the scan from which an input's rows come, possibly filtered or delayed; None for any other input."""
    node = source(node)
    return node if isinstance(node, LogicalScan) else None


def on_expire(query: Query, hint: TtlHint | None, node: LogicalNode) -> OnExpire:
    """Return what happens to an input's expired rows: the hint's setting, else the table's, else the job's."""
    said = None if hint is None else hint.on_expire
    scan = table(node)
    return said or (scan and scan.source.on_expire) or query.job.on_expire


def all_taken_back(node: LogicalNode) -> bool:
    """Whether all rows from which a node is derived are retracted when they expire, so that the node needs no TTL.

    The versions that a lookup by time reads are not considered, because a version remains valid for its period of time,
    however old it is.
    """
    if isinstance(node, LogicalNormalize) and node.takes_back:
        return True
    if isinstance(node, LogicalLookup) and node.match is not None and node.match.versions:
        return all_taken_back(node.left.input)
    return is_empty(node) or (not isinstance(node, LogicalScan) and all(map(all_taken_back, inputs(node))))
