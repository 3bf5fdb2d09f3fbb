"""ORDER BY without LIMIT at the end of the whole query: rows are released in time order, as the watermark advances.

A projection below the SELECT list computes the ORDER BY terms. A temporal filter between the two releases the rows. A
later pass checks whether there is a watermark, and whether rows can still change (`passes.delay_until_final`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.physical.clocks import Clock
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.sql.context import Names
from rowkind.service.plan.sql.scope import near
from rowkind.service.plan.sql.windows import Terms, is_arrival
from rowkind.service.plan.syntax import sql_text


@dataclass(frozen=True)
class TimeOrder:
    """An ORDER BY whose terms are names or numbers of columns in the SELECT list.

    `asked` are the columns that were added to the SELECT list only for the ORDER BY. `at` is the first term in the SQL.
    """

    order: exp.Order
    at: exp.Expr
    asked: frozenset[str] = frozenset()


def time_order(tree: exp.Expr) -> tuple[exp.Expr, TimeOrder | None]:
    """Remove an ORDER BY without LIMIT; return the query with columns for the terms, and the ORDER BY or None."""
    if tree.args.get("order") is None or tree.args.get("limit") or tree.args.get("offset"):
        return tree, None
    at, tree = tree.args["order"].expressions[0].this, tree.copy()
    order = tree.args["order"].pop()
    if not isinstance(tree, exp.Select) or tree.args.get("distinct"):
        return tree, TimeOrder(order, at)
    named = {each.alias.lower() for each in tree.expressions if isinstance(each, exp.Alias)}
    asked: list[str] = []
    for each in order.expressions:
        node = each.this.unnest()
        if isinstance(node, exp.Literal) or is_arrival(node):
            continue
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in named:
            continue
        asked.append(f"_order_{len(asked) + 1}")
        tree.append("expressions", exp.alias_(node.copy(), asked[-1]))
        node.replace(exp.column(asked[-1]))
    return tree, TimeOrder(order, at, frozenset(asked))


def in_time_order(root: LogicalProject, said: TimeOrder) -> LogicalProject:
    """Return the whole query with its rows released in the given order. Raises Refusal."""
    outputs = {name: output for name, output in root.outputs.items() if name not in said.asked}
    by_name = {name.lower(): output for name, output in root.outputs.items()}
    order = said.order.copy()
    for each in order.expressions:
        node = each.this.unnest()
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            number = int(str(node.this))
            if not 1 <= number <= len(outputs):
                raise Refusal(
                    f"there is no column {number} in the SELECT list: its last column is {len(outputs)}", node
                )
            each.set("this", list(outputs.values())[number - 1].copy())
        elif isinstance(node, exp.Column) and node.name.lower() in by_name:
            each.set("this", by_name[node.name.lower()].copy())
        elif not is_arrival(node):
            raise Refusal(
                f"ORDER BY can use only columns of the result here, but {sql_text(node)} is not one of "
                f"them{near(node.name, outputs)}",
                node,
            )
    names = Names("")
    names.reserve([*root.outputs, *columns(root.input)])
    terms = Terms(root.input, names)
    orders = terms.orders(order)
    sorted_ = LogicalTemporalFilter(
        LogicalInput(terms.node),
        Clock(),
        None,
        None,
        final=True,
        reason="rows are emitted in the order of their time",
        at=said.at,
        order=orders,
        partition=(),
    )
    return LogicalProject(sorted_, outputs)
