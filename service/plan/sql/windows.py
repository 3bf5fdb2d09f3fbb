"""Plans window functions: ranks, functions with ORDER BY or a frame, and aggregates over a whole partition.

    ROW_NUMBER, RANK, DENSE_RANK() OVER (PARTITION BY … ORDER BY …)     one more column of a Window, the number
    SUM(x) OVER (PARTITION BY k ORDER BY t)                             one more column of an Over (`sql.over`)
    SUM(x) OVER (PARTITION BY k)                                        JOIN (SELECT k, SUM(x) … GROUP BY k) ON k <=> k

A Project below computes the expressions in PARTITION BY and ORDER BY. Conditions on the number remain above the Window,
where `rewrite_ranks` finds them. All aggregates over the same partition share one Aggregate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.rank.ranking import RankFunction
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject, LogicalWindow
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.sql.aggregates import bare, is_aggregate, is_known, no_aggregate
from rowkind.service.plan.sql.context import Names
from rowkind.service.plan.sql.grouping import Grouping, stem
from rowkind.service.plan.sql.over import OrderedWindow, called, check_over, is_over, stacked
from rowkind.service.plan.sql.scope import outside_queries
from rowkind.service.plan.view import View

_FUNCTIONS: Mapping[type[exp.Expr], RankFunction] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
_THERE_IS = (
    "the window functions are ROW_NUMBER, RANK, DENSE_RANK, NTILE, PERCENT_RANK, CUME_DIST, LAG, LEAD, FIRST_VALUE, "
    "LAST_VALUE, NTH_VALUE, and every aggregate function"
)


def named_windows(tree: exp.Select) -> dict[str, exp.Window]:
    """Return the WINDOW clause's windows, keyed by name in lower case. Raises Refusal."""
    found: dict[str, exp.Window] = {}
    for each in tree.args.get("windows") or []:
        name = each.name.lower()
        if name in found:
            raise Refusal(f"two windows are named {each.name}: give one of them another name", each)
        found[name] = _written_out(each, found)
    return found


def with_windows(node: exp.Expr, named: Mapping[str, exp.Window]) -> exp.Expr:
    """Replace references to named windows in an expression with the windows' definitions. Raises Refusal."""

    def written(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Query):
            # A subquery has its own windows. `transform` does not descend into a replaced node, such as this copy.
            return each.copy()
        return _written_out(each, named) if isinstance(each, exp.Window) else each

    return node.transform(written) if node.find(exp.Window) else node


def _written_out(window: exp.Window, named: Mapping[str, exp.Window]) -> exp.Window:
    """Return a window with the clauses of the named window to which it refers, if any. Raises Refusal."""
    called = window.args.get("alias")
    if called is None:
        return window
    if called.name.lower() not in named:
        raise Refusal(f"the WINDOW clause has no window named {called.name}", called)
    meant = named[called.name.lower()]
    copied = window.copy()
    copied.set("alias", None)
    for part in ("partition_by", "order", "spec"):
        if meant.args.get(part):
            if copied.args.get(part):
                raise Refusal(f"the window {called.name} already has this clause: remove one of the two", window)
            value = meant.args[part]
            copied.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    return copied


def check_windows(node: exp.Expr) -> None:
    """Refuse unsupported window functions, and calls that are allowed only with OVER or ORDER BY."""
    for each in node.find_all(*_FUNCTIONS, exp.Ntile, exp.PercentRank, exp.CumeDist):
        if isinstance(each, exp.Func) and not isinstance(each.parent, exp.Window):
            raise Refusal(f"{word(each)}() is a window function: write OVER (PARTITION BY … ORDER BY …) after it", each)
    for each in node.find_all(exp.Anonymous):
        if is_arrival(each) and not isinstance(each.parent, exp.Ordered):
            raise Refusal(
                "PROCTIME() is allowed only as a column of the SELECT list (the processing time of a row) or "
                "alone in ORDER BY (the order of arrival): select it in a derived table or a view, and use that "
                "column",
                each,
            )
    for window in node.find_all(exp.Window):
        function = bare(window.this)
        if any(inner is not window for inner in window.find_all(exp.Window)):
            raise Refusal("window functions cannot be nested: compute the inner one in a derived table", window)
        if is_over(window):
            check_over(window)
        elif type(function) in _FUNCTIONS:
            _check_rank(window, called(window))
        elif not is_known(function):
            if isinstance(function, exp.Func) and is_aggregate(function) and not isinstance(function, exp.Grouping):
                raise no_aggregate(function)
            raise Refusal(f"{called(window)} is not a window function, so it cannot have OVER; {_THERE_IS}", window)


def _check_rank(window: exp.Window, name: str) -> None:
    """Refuse clauses that ROW_NUMBER, RANK and DENSE_RANK do not accept."""
    if type(window.this) not in _FUNCTIONS or window.this.expressions:
        raise Refusal(f"{name}() takes no arguments and no clause except OVER", window)
    if window.args.get("spec"):
        raise Refusal(f"{name}() cannot have ROWS or RANGE: remove it", window)
    if not window.args.get("order"):
        raise Refusal(f"{name}() OVER (…) needs ORDER BY; for the order of arrival, write ORDER BY PROCTIME()", window)


def is_arrival(node: exp.Expr) -> bool:
    """Return whether a node is PROCTIME(), which in ORDER BY means the order in which rows arrive."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME"


def no_windows(node: exp.Expr, clause: str) -> None:
    """Refuse window functions in a clause that is evaluated before window functions. Subqueries are not checked."""
    for each in outside_queries(node):
        if isinstance(each, exp.Window):
            raise Refusal(
                f"window functions are not allowed in {clause}: compute the value in a derived table, and "
                "filter outside",
                each,
            )


def number_rows(
    node: LogicalNode, expressions: Mapping[str, exp.Expr], names: Names, *, unbounded: bool = False
) -> tuple[LogicalNode, dict[exp.Expr, exp.Column]]:
    """Add a column for each window function in `expressions`; return the rows, and the column of each function.

    The expressions are over the node's columns. An expression's key is the name of the result column that it defines,
    or "". `unbounded` is True if the hint UNBOUNDED_RANK is set. Raises Refusal.
    """
    found: dict[exp.Window, str] = {}
    for name, expression in expressions.items():
        for window in expression.find_all(exp.Window):
            own = name if expression.unnest() == window else ""
            found.setdefault(window, own)
    if not found:
        return node, {}
    terms = Terms(node, names)
    partitions = {window: terms.columns(_parted_by(window), "PARTITION BY") for window in found}
    overs = {window: own for window, own in found.items() if is_over(window)}
    asked = {
        own or names.fresh(stem(window.this)): OrderedWindow.of(
            window, partitions[window], terms.orders(window.args["order"]), terms
        )
        for window, own in ((window, names.claim(own) if own else "") for window, own in overs.items())
    }
    ranks = [(window, terms.orders(window.args["order"])) for window in found if type(window.this) in _FUNCTIONS]
    node = stacked(terms.node, asked)
    numbers: dict[exp.Expr, exp.Column] = {
        over.window: resolved(name, like=over.window) for name, over in asked.items()
    }
    whole: dict[tuple[str, ...], dict[exp.Window, str]] = {}
    for window, own in found.items():
        if type(window.this) not in _FUNCTIONS and window not in overs:
            whole.setdefault(partitions[window], {})[window] = own
    if whole:
        node = base = planned_once(node)
    for partition, windows in whole.items():
        right, keys, values = _aggregates(base, partition, windows, names)
        node = LogicalJoin(LogicalInput(node), LogicalInput(right), keys, "inner", next(iter(windows)))
        numbers |= values
    for call, order in ranks:
        function, partition = _FUNCTIONS[type(call.this)], partitions[call]
        own = found[call]
        number = names.claim(own) if own else names.fresh(function)
        node = LogicalWindow(node, function, partition, order, number, call, unbounded)
        numbers[call] = resolved(number, like=call)
    return node, numbers


def planned_once(node: LogicalNode) -> LogicalNode:
    """Wrap the rows in a view, so that their state is stored only once even if several operators read the rows."""
    every = {name: resolved(name) for name in columns(node)}
    name = f"rows {hashlib.sha256(repr(node).encode()).hexdigest()}"
    return LogicalProject(node, every, View(name, tuple(every)))


def _aggregates(
    node: LogicalNode, partition: tuple[str, ...], windows: Mapping[exp.Window, str], names: Names
) -> tuple[LogicalNode, tuple[exp.Expr, ...], dict[exp.Expr, exp.Column]]:
    """Return the aggregates over each partition, the conditions for joining them, and each window function's column."""
    at = next(iter(windows))
    grouping = Grouping(node, names, dict[str, str]().keys())
    outputs: dict[str, exp.Expr] = {}
    for column in partition:
        outputs[names.fresh(column.rpartition(".")[2])] = resolved(grouping.group_by(resolved(column), at))
    keys: list[exp.Expr] = [
        exp.NullSafeEQ(this=resolved(column), expression=resolved(own))
        for column, own in zip(partition, outputs, strict=True)
    ]
    values: dict[exp.Expr, exp.Column] = {}
    for window, own in windows.items():
        call = grouping.over(window.this.copy())
        column = names.claim(own) if own else names.fresh(stem(window.this))
        outputs[column] = call
        values[window] = resolved(column, like=window)
    aggregate = grouping.aggregate(is_global=not partition, at=at, split=None)
    return LogicalProject(aggregate, outputs), tuple(keys), values


def replaced(node: exp.Expr, numbers: Mapping[exp.Expr, exp.Column]) -> exp.Expr:
    """Replace the window functions in an expression with the columns that hold their values."""
    return node.transform(lambda each: numbers[each.unnest()].copy() if isinstance(each.unnest(), exp.Window) else each)


def within(node: exp.Expr, partition: Sequence[str]) -> exp.Expr:
    """Add columns to PARTITION BY in all window functions of an expression, and return the expression."""
    if not partition:
        return node
    node = node.copy()
    for window in node.find_all(exp.Window):
        parts = [*(window.args.get("partition_by") or []), *map(resolved, partition)]
        window.set("partition_by", parts)
    return node


def _parted_by(window: exp.Window) -> list[exp.Expr]:
    """Return the expressions in PARTITION BY, except constants, which are the same in all rows."""
    return [each for each in window.args.get("partition_by") or [] if not _is_constant(each.unnest())]


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean)


class Terms:
    """Adds columns for the expressions in PARTITION BY and ORDER BY to rows."""

    def __init__(self, node: LogicalNode, names: Names) -> None:
        self._below = node
        self._names = names
        self._types = columns(node)
        self._computed: dict[exp.Expr, str] = {}

    @property
    def node(self) -> LogicalNode:
        """The rows with the added columns."""
        if not self._computed:
            return self._below
        computed = {name: node for node, name in self._computed.items()}
        return LogicalProject(self._below, {name: resolved(name) for name in self._types} | computed)

    def columns(self, nodes: Sequence[exp.Expr], clause: str) -> tuple[str, ...]:
        """Return the columns that hold the given expressions, whose values must be orderable. Raises Refusal."""
        return tuple(dict.fromkeys(self._column(node, clause) for node in nodes))

    def value(self, node: exp.Expr) -> str:
        """Return the column that holds an expression, even if its values cannot be ordered. Raises Refusal."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return node.name
        if node not in self._computed:
            self._computed[node] = self._names.fresh(stem(node))
        return self._computed[node]

    def type(self, node: exp.Expr) -> Type:
        """Return the type of an expression. Raises Refusal."""
        return type_of(node, by_name(self._types))

    def orders(self, order: exp.Order) -> tuple[OrderColumn, ...]:
        """Return the columns that hold the terms of an ORDER BY. Raises Refusal."""
        found: dict[str | None, OrderColumn] = {}
        for each in order.expressions:
            ordered = cast("exp.Ordered", each)
            node = ordered.this.unnest()
            descending, first = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
            if ordered.args.get("with_fill"):
                raise Refusal("WITH FILL is not supported, because rows come only from tables: remove it", ordered)
            if is_arrival(node):
                if node.expressions:
                    raise Refusal("PROCTIME() takes no arguments", node)
                found.setdefault(None, OrderColumn(None, descending, first))
                continue
            if _is_constant(node):
                raise Refusal("ORDER BY cannot use a constant: order by a column, or by PROCTIME()", ordered)
            column = self._column(node, "ORDER BY")
            found.setdefault(column, OrderColumn(column, descending, first))
        return tuple(found.values())

    def _column(self, node: exp.Expr, clause: str) -> str:
        node = node.unnest()
        type_ = self.type(node)
        if not type_.orderable:
            raise Refusal(f"type {type_.sql} is not allowed in {clause}: use one of the value's fields, or a key", node)
        return self.value(node)
