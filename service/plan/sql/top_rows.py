"""ORDER BY … LIMIT n: keeps the first n rows.

LIMIT without ORDER BY may return any rows. As in Flink, it returns the rows that arrived first, so that fewer changes
are written. ORDER BY without LIMIT has no effect in a derived table or subquery, whose rows have no order. At the end
of the whole query, it has already been handled by `sql.time_order`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalWindow
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Names, Selected
from rowkind.service.plan.sql.correlations import correlated_columns
from rowkind.service.plan.sql.scope import Scope, near
from rowkind.service.plan.sql.select_list import Item, SelectList
from rowkind.service.plan.sql.windows import Terms, no_windows

_ARRIVAL = exp.Order(expressions=[exp.Ordered(this=exp.Anonymous(this="PROCTIME"), nulls_first=True)])


@dataclass(frozen=True)
class TopRows:
    """The rows that ORDER BY and LIMIT select: the rows numbered from `first` to `last` in the given order."""

    order: exp.Order
    first: int
    last: int
    at: exp.Expr


def top_rows(tree: exp.Expr) -> TopRows | None:
    """Return the rows that ORDER BY, LIMIT and OFFSET select, or None if there is no LIMIT. Raises Refusal."""
    order, limit, offset = (tree.args.get(name) for name in ("order", "limit", "offset"))
    if limit is None and offset is None:
        return None
    if limit is None:
        raise Refusal("OFFSET needs a LIMIT: write LIMIT n OFFSET m", offset)
    skipped = _number(offset.expression, "OFFSET") if offset is not None else 0
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            raise Refusal(
                "FETCH takes a number of rows: to include ties, filter by RANK() OVER (ORDER BY …) <= n", tree
            )
        count = limit.args.get("count")
    else:
        count = limit.expression
        if limit.expressions:
            raise Refusal("LIMIT … BY is not supported: filter by ROW_NUMBER() OVER (PARTITION BY …) <= n", limit)
    kept = _number(count, "LIMIT")
    if kept == 0:
        raise Refusal("LIMIT 0 returns no rows: write 1 or more, or remove the query", limit)
    return TopRows(order or _ARRIVAL.copy(), skipped + 1, skipped + kept, order or limit)


def keep_top(
    node: LogicalNode, top: TopRows, order: exp.Order, names: Names, partition: tuple[str, ...] = ()
) -> LogicalNode:
    """Return the top rows of each partition of a node's rows. `order` must refer to the node's columns."""
    terms = Terms(node, names)
    orders = terms.orders(order)
    number = names.fresh("row_number")
    column = resolved(number, like=top.at)
    conditions: list[exp.Expr] = [exp.LTE(this=column, expression=exp.Literal.number(top.last))]
    if top.first > 1:
        conditions.insert(0, exp.GTE(this=column.copy(), expression=exp.Literal.number(top.first)))
    return LogicalFilter(LogicalWindow(terms.node, "row_number", partition, orders, number, top.at), tuple(conditions))


def top_of_result(inner: Selected, tree: exp.Expr, names: Names) -> Selected:
    """Return the top rows of a query's result, as its ORDER BY … LIMIT requires.

    The ORDER BY can use only columns of the result. Raises Refusal.
    """
    top = top_rows(tree)
    if top is None:
        return inner
    items = SelectList(tuple(Item(name, expression, tree) for name, expression in inner.outputs.items()))
    names.reserve(list(inner.outputs))

    def alias(column: exp.Column) -> exp.Expr:
        found = items.find(column)
        if found is None:
            known = [item.name for item in items.items]
            raise Refusal(
                f"ORDER BY can use only columns of the result here, but {column.name} is not one of "
                f"them{near(column.name, known)}",
                column,
            )
        return found

    order = top.order.copy()
    no_windows(order, "ORDER BY after the whole query")
    for each in order.expressions:
        item = items.position(each.this)
        each.set("this", item.expression.copy() if item is not None else Scope(()).resolve(each.this, alias=alias))
    node, partition, links = correlated_columns(inner.links, inner.input, names)
    kept = keep_top(node, top, order, names, partition)
    return Selected(kept, inner.outputs, links, single=top.first == top.last)


def _number(node: exp.Expr | None, clause: str) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        return int(str(node.this))
    raise Refusal(f"{clause} needs an integer literal, such as {clause} 10", node)
