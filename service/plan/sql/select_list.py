"""The SELECT list: plans a query's columns, and resolves their names in other clauses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar.calls import is_unknown, no_function
from rowkind.service.plan.sql.aggregates import is_aggregate, is_window_function
from rowkind.service.plan.sql.context import Context
from rowkind.service.plan.sql.scope import Handler, Scope, near
from rowkind.service.plan.syntax import sql_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Item:
    """A column of the SELECT list: its name, its resolved expression, and its node in the SQL."""

    name: str
    expression: exp.Expr
    at: exp.Expr


@dataclass(frozen=True)
class SelectList:
    """A SELECT's columns, in order."""

    items: tuple[Item, ...]

    def find(self, column: exp.Column) -> exp.Expr | None:
        """Return the expression of the result column with this name, or None if there is no such column."""
        return next((item.expression for item in self.items if item.name.lower() == column.name.lower()), None)

    def position(self, node: exp.Expr) -> Item | None:
        """Return the item to which a number in GROUP BY or ORDER BY refers, or None for other nodes. Raises Refusal."""
        if not (isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()):
            return None
        number = int(str(node.this))
        if not 1 <= number <= len(self.items):
            raise Refusal(f"there is no column {number} in the SELECT list: its last column is {len(self.items)}", node)
        return self.items[number - 1]


def select_list(tree: exp.Select, scope: Scope, subquery: Handler, context: Context) -> SelectList:
    """Return the columns of a SELECT. Raises Refusal.

    As in Spark, an expression may refer to an earlier column of the SELECT list by name if FROM has no column of that
    name.
    """
    if kind := tree.args.get("kind"):
        raise Refusal(f"SELECT AS {kind} is not supported", tree)
    items: list[Item] = []
    for item in tree.expressions:
        lateral = SelectList(tuple(items))
        for name, expression in _outputs(item, scope, subquery, lateral, context):
            taken = {other.name.lower() for other in items}
            if context.result and context.named and not _NAME.fullmatch(name):
                raise Refusal(f"{name!r} cannot be a field name of an Avro record: give it another name with AS", item)
            if context.named and name.lower() in taken and isinstance(item, exp.Alias | exp.Column | exp.Star):
                raise Refusal(
                    f"two columns of the result are named {name}: give one of them another name with AS", item
                )
            own = name if name and name.lower() not in taken else f"column_{len(items) + 1}"
            items.append(Item(own, expression, item))
    if not items:
        at = tree.expressions[0] if tree.expressions else tree
        raise Refusal("the SELECT list has no column: a result needs at least one", at)
    return SelectList(tuple(items))


def _outputs(
    item: exp.Expr, scope: Scope, subquery: Handler, lateral: SelectList, context: Context
) -> Iterator[tuple[str, exp.Expr]]:
    if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
        yield from _star(item, scope)
        return
    name = item.alias if isinstance(item, exp.Alias) else item.name if isinstance(item, exp.Column) else ""
    if not name and context.named:
        if context.result:
            if is_unknown(item) and not is_aggregate(item):
                raise no_function(item)
            raise Refusal("this column of the result has no name: give it a name with AS", item)
        name = _spelled(item)
    node = item.this if isinstance(item, exp.Alias) else item

    def alias(column: exp.Column) -> exp.Expr | None:
        return None if scope.knows(column) else lateral.find(column)

    yield name, scope.resolve(node, subquery=subquery, alias=alias)


def _spelled(node: exp.Expr) -> str:
    """Return Spark's name for a column without an alias: the column's expression, such as `sum(x)` or `(a + 1)`."""
    match node:
        case exp.Column():
            return node.name
        case exp.Star():
            return "1"
        case exp.Literal():
            return str(node.this)
        case exp.Paren():
            return _spelled(node.this)
        case exp.Binary() if not isinstance(node, exp.Connector | exp.Func):
            operator = sql_text(node).removeprefix(sql_text(node.left)).removesuffix(sql_text(node.right))
            return f"({_spelled(node.left)}{operator}{_spelled(node.right)})"
        case exp.Anonymous() | exp.AggFunc():
            arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this, *node.expressions]
            return f"{word(node).lower()}({', '.join(_spelled(each) for each in arguments if each is not None)})"
    return sql_text(node)


def _star(item: exp.Expr, scope: Scope) -> Iterator[tuple[str, exp.Expr]]:
    star = item if isinstance(item, exp.Star) else item.this
    table = item.table if isinstance(item, exp.Column) else ""
    columns = list(scope.star(item, table))
    if extra := [name for name, value in star.args.items() if value and name != "except_"]:
        raise Refusal(f"* {extra[0].strip('_').upper()} is not supported: list the columns", item)
    left_out = [_left_out(each, columns, scope, table) for each in star.args.get("except_") or []]
    yield from ((name, expression) for name, expression in columns if expression not in left_out)


def _left_out(column: exp.Expr, columns: list[tuple[str, exp.Expr]], scope: Scope, table: str) -> exp.Expr:
    """Return the column of `*` or `table.*` to which a name in EXCEPT refers. Raises Refusal."""
    found = [expression for name, expression in columns if name.lower() == column.name.lower()]
    if found and (column.args.get("table") or len(found) > 1):
        meant = scope.resolve(column)
        found = [expression for expression in found if expression == meant]
    if not found:
        star = f"{table}.*" if table else "*"
        known = "" if column.args.get("table") else near(column.name, [name for name, _ in columns])
        raise Refusal(f"{star} has no column {sql_text(column)}{known}", column)
    return found[0]


def in_call(column: exp.Expr) -> bool:
    """Return whether a column is inside an aggregate call."""
    node = column.parent
    while node is not None:
        if is_aggregate(node) and not is_window_function(node):
            return True
        node = node.parent
    return False


def aliases_last(
    scope: Scope, columns: SelectList, grouped: set[str] | None
) -> Callable[[exp.Column], exp.Expr | None]:
    """Return a function that resolves unqualified names in HAVING and QUALIFY.

    A name refers to a column of FROM if that column is available after grouping, or else to a result column. `grouped`
    are the columns that the group expressions read, or None if nothing is grouped.
    """

    def alias(column: exp.Column) -> exp.Expr | None:
        found = columns.find(column)
        if found is None or in_call(column):
            return None
        if not scope.knows(column):
            return found
        if grouped is None:
            return None
        own = scope.resolve(column)
        return None if {each.name for each in own.find_all(exp.Column)} <= grouped else found

    return alias


def aliases_first(columns: SelectList) -> Callable[[exp.Column], exp.Expr | None]:
    """Return a function that resolves unqualified names in ORDER BY.

    A name refers to a result column if there is one, or else to a column of FROM.
    """

    def alias(column: exp.Column) -> exp.Expr | None:
        return None if in_call(column) else columns.find(column)

    return alias
