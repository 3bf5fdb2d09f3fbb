"""PROCTIME() as a column: the time at which a row is processed, which is the same for all rows of a batch.

    SELECT *, PROCTIME() AS p FROM bids                                       in a view: a column of every row
    TABLE(TUMBLE(TABLE bids, DESCRIPTOR(PROCTIME()), INTERVAL '1' MINUTE))    processing-time windows
    GROUP BY TUMBLE(PROCTIME(), INTERVAL '1' MINUTE)

In ORDER BY, PROCTIME() means the order in which rows arrive, for which no time is needed (`sql.windows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.sql.context import Context, Queries
from rowkind.service.plan.sql.scope import Relation, Scope, outside_queries
from rowkind.service.plan.sql.windows import is_arrival

_COLUMN = "proctime"


def with_processing_time(
    tree: exp.Select, rows: LogicalNode, scope: Scope, context: Context, queries: Queries
) -> tuple[exp.Select, LogicalNode, Scope]:
    """Replace PROCTIME() in a SELECT with a column; return the SELECT, and the rows and scope extended with the column.

    If the SELECT does not contain PROCTIME(), return all three unchanged. Raises Refusal.
    """
    calls = list(_calls(tree))
    if not calls:
        return tree, rows, scope
    for call in calls:
        if call.expressions:
            raise Refusal("PROCTIME() takes no arguments", call)
    stamped, relation = with_stamp(rows, calls[0], context, queries)
    tree = tree.copy()
    for call in _calls(tree):
        column = exp.column(_COLUMN, table=relation.alias)
        column.meta.update(call.meta)
        call.replace(column)
    return tree, stamped, replace(scope, relations=(*scope.relations, relation))


def with_stamp(rows: LogicalNode, at: exp.Expr, context: Context, queries: Queries) -> tuple[LogicalStamp, Relation]:
    """Add a column with the processing time to the rows; return the rows and a relation with only this column."""
    path = queries.invent(context.path, _COLUMN)
    name = f"{path}{_COLUMN}"
    relation = Relation(path.removeprefix(context.path).rstrip("."), {_COLUMN: name}, hidden=True)
    return LogicalStamp(LogicalInput(rows), name, at), relation


def _calls(tree: exp.Select) -> Iterator[exp.Anonymous]:
    """Yield the calls of PROCTIME() whose value is needed, so not those in ORDER BY."""
    group = tree.args.get("group")
    for item in (*tree.expressions, *([] if group is None else [group])):
        # The caller may replace the nodes while it iterates.
        for node in list(outside_queries(item)):
            if isinstance(node, exp.Anonymous) and is_arrival(node) and not isinstance(node.parent, exp.Ordered):
                yield node
