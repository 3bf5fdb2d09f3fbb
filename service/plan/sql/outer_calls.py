"""Aggregates of an outer query in a subquery, as in `HAVING EXISTS (SELECT 1 FROM d WHERE d.budget < SUM(e.salary))`.

WHERE and ON cannot contain an aggregate of the subquery itself. An aggregate in WHERE or ON that reads columns of an
outer query belongs to the outer query. It is computed with the outer query's other aggregates, and the subquery reads
the resulting column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.sql.aggregates import is_aggregate, is_window_function
from rowkind.service.plan.sql.scope import Relation, Scope
from rowkind.service.plan.sql.select_list import in_call

_ALIAS = "#calls"


def outer_calls(select: exp.Select, scope: Scope) -> tuple[exp.Select, dict[str, exp.Expr]]:
    """Replace a SELECT's aggregates in its subqueries with columns; return the SELECT and the aggregates by column.

    The columns in such an aggregate must be qualified with a table name; otherwise they could be the subquery's own
    columns.
    """
    select = select.copy()
    found: dict[str, exp.Expr] = {}
    clauses = [*select.expressions, *(select.args.get(name) for name in ("having", "qualify"))]
    for call in [each for clause in clauses if clause is not None for each in clause.walk()]:
        if is_aggregate(call) and not is_window_function(call) and _is_of(call, select, scope):
            name = next((name for name, other in found.items() if other == call), f"call_{len(found) + 1}")
            found[name] = call.copy()
            column = exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(_ALIAS, quoted=True))
            column.this.meta.update(next((each.meta for each in call.walk() if "start" in each.meta), {}))
            call.replace(column)
    return select, found


def with_calls(scope: Scope, calls: dict[str, str]) -> Scope:
    """Return the scope for subqueries after grouping, extended with columns for the aggregates in `calls`."""
    return replace(scope, relations=(*scope.relations, Relation(_ALIAS, calls, hidden=True)))


def _is_of(call: exp.Expr, select: exp.Select, scope: Scope) -> bool:
    """Return whether an aggregate in a subquery's WHERE or ON clause belongs to the outer SELECT."""
    around = list(_around(call, select))
    tables = {column.table.lower() for column in call.find_all(exp.Column)}
    if not around or not _in_condition(call) or not tables or call.find(exp.Query) or in_call(around[-1]):
        return False
    theirs = {relation.alias.lower() for relation in scope.relations}
    own = {each.alias_or_name.lower() for query in around for each in _listed(query)}
    return tables <= theirs - own


def _around(call: exp.Expr, select: exp.Select) -> Iterator[exp.Query]:
    """Yield the SELECT's subqueries that contain a call, innermost first."""
    node = call.parent
    while node is not None and node is not select:
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            yield node
        node = node.parent


def _in_condition(call: exp.Expr) -> bool:
    """Return whether a call is in the WHERE or ON clause of the innermost query that contains it."""
    node = call
    while node.parent is not None and not isinstance(node.parent, exp.Query):
        node = node.parent
    return isinstance(node, exp.Where | exp.Join)


def _listed(query: exp.Query) -> Iterator[exp.Expr]:
    """Yield the relations in a query's FROM clause."""
    if (first := query.args.get("from_")) is not None:
        yield first.this
    for each in (*(query.args.get("joins") or ()), *(query.args.get("laterals") or ())):
        yield each.this if isinstance(each, exp.Join) else each
