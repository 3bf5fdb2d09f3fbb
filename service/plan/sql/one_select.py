"""One SELECT, clause by clause as SQL says that they happen.

    FROM, WHERE                 from_clause, generators, subqueries
    GROUP BY, HAVING            grouping
    window functions, QUALIFY   windows
    DISTINCT, ORDER BY … LIMIT  unions, top_rows
    the SELECT list             select_list

Names mean columns of FROM, or of the SELECT list; what is selected is therefore resolved first of all, and then
rewritten over what each clause makes of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import LogicalFilter, LogicalProject, conjuncts, reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Names, Queries, Selected
from rowkind.service.plan.sql.from_clause import from_clause
from rowkind.service.plan.sql.generators import in_select
from rowkind.service.plan.sql.grouping import Grouping, calls, group_expressions
from rowkind.service.plan.sql.grouping_sets import GroupingSets, grouping_sets
from rowkind.service.plan.sql.hints import no_split
from rowkind.service.plan.sql.select_list import SelectList, aliases_first, aliases_last, select_list
from rowkind.service.plan.sql.subqueries import ScalarSubqueries, equal_links, where
from rowkind.service.plan.sql.top_rows import TopRows, keep_top, top_of_result, top_rows
from rowkind.service.plan.sql.unions import without_duplicates
from rowkind.service.plan.sql.windows import (
    check_windows,
    named_windows,
    no_windows,
    number_rows,
    replaced,
    with_windows,
)


@dataclass(frozen=True)
class Clauses:
    """What a SELECT computes from its rows: its list, HAVING, QUALIFY, and ORDER BY where LIMIT follows."""

    items: SelectList
    having: exp.Expr | None = None
    qualify: exp.Expr | None = None
    order: exp.Order | None = None

    def changed(self, change: Callable[[exp.Expr, str], exp.Expr]) -> Clauses:
        """All expressions rewritten; `change` also gets the name of a column of the result, empty for the others."""
        items = [replace(item, expression=change(item.expression, item.name)) for item in self.items.items]
        having, qualify, order = (
            None if each is None else change(each, "") for each in (self.having, self.qualify, self.order)
        )
        assert order is None or isinstance(order, exp.Order), "an ORDER BY stays one"
        return Clauses(SelectList(tuple(items)), having, qualify, order)

    def __iter__(self) -> Iterator[exp.Expr]:
        yield from (item.expression for item in self.items.items)
        yield from (each for each in (self.having, self.qualify, self.order) if each is not None)


class OneSelect:
    """One SELECT on its way: the rows so far, and what its clauses compute from them."""

    def __init__(self, tree: exp.Select, context: Context, split: exp.Expr | None, queries: Queries) -> None:
        self._tree = tree
        self._context = context
        self._split = split
        self._names = Names(context.path)
        self._node, self._scope = from_clause(tree, context, queries)
        self._links: tuple[exp.Expr, ...] = ()
        if (condition := tree.args.get("where")) is not None:
            self._node, self._links = where(condition.this, self._node, self._scope, context, queries)
        self._tree, self._node, self._scope = in_select(tree, self._node, self._scope, context, queries)
        self._windows = named_windows(tree)
        group = tree.args.get("group")
        self._sets = grouping_sets(group) if group is not None else None
        # GROUPING SETS (()) is one group of all rows, as there is without GROUP BY.
        self._all_in_one = group is None or self._sets == ((),)
        self._values = ScalarSubqueries(queries, context, self._scope)

    def built(self) -> Selected:
        """The rows and columns. Raises Refusal."""
        distinct, top = self._tree.args.get("distinct"), top_rows(self._tree)
        if distinct is not None and distinct.args.get("on"):
            raise Refusal("DISTINCT ON is not supported: keep ROW_NUMBER() OVER (PARTITION BY …) = 1", self._tree)
        clauses, grouping = self._resolved(None if distinct is not None else top)
        for each in clauses:
            check_windows(each)
        counts: frozenset[str] | None = None
        if grouping is not None:
            clauses = self._grouped(clauses, grouping)
            counts = grouping.counts if self._all_in_one else None
        elif distinct is None:
            no_split(self._split)
        self._node, meanings = self._values.join(self._node)
        clauses = clauses.changed(lambda node, _: substitute(node, meanings))
        if clauses.having is not None:
            self._having_of_one_row(counts)
            counts = None
            self._node = LogicalFilter(self._node, conjuncts(clauses.having))
        clauses = self._numbered(clauses)
        if distinct is not None:
            return self._distinct(clauses.items, limited=top is not None)
        outputs = {item.name: item.expression for item in clauses.items.items}
        if top is not None and clauses.order is not None:
            self._no_links("ORDER BY … LIMIT")
            return Selected(
                keep_top(self._node, top, clauses.order, self._names), outputs, single=top.first == top.last
            )
        single = grouping is not None and self._all_in_one
        return Selected(self._node, outputs, self._links, single=single, counts=counts)

    def _resolved(self, top: TopRows | None) -> tuple[Clauses, Grouping | None]:
        """All clauses with their names resolved, and the groups, None where nothing is grouped."""
        tree, windows = self._tree.copy(), self._windows
        tree.set("expressions", [with_windows(each, windows) for each in tree.expressions])
        items = select_list(tree, self._scope, self._values.place, named=self._context.named)
        self._names.reserve([item.name for item in items.items])
        order = None if top is None else self._order(with_windows(top.order, windows), items)
        having, qualify = (tree.args.get(clause) for clause in ("having", "qualify"))
        group = tree.args.get("group")
        pieces = [*Clauses(items, qualify=qualify, order=order)]
        grouping = None
        if group is not None or having is not None or any(any(calls(each)) for each in pieces):
            grouping = self._groups(group, items)
        alias = aliases_last(self._scope, items, None if grouping is None else grouping.grouped)
        if having is not None:
            no_windows(having.this, "HAVING")
            having = self._scope.resolve(having.this, subquery=self._values.place, alias=alias)
        if qualify is not None:
            at = qualify.this
            qualify = self._scope.resolve(with_windows(at, windows), subquery=self._values.place, alias=alias)
            if not qualify.find(exp.Window):
                raise Refusal("QUALIFY is for conditions on window functions: this one belongs into WHERE", at)
        return Clauses(items, having, qualify, order), grouping

    def _order(self, order: exp.Expr, items: SelectList) -> exp.Order:
        """ORDER BY with its names resolved; a number stands for a column of the result."""
        copied = order.copy()
        assert isinstance(copied, exp.Order), "this is ORDER BY"
        for each in copied.expressions:
            item = items.position(each.this)
            if item is not None:
                each.set("this", item.expression.copy())
            else:
                alias = aliases_first(items)
                each.set("this", self._scope.resolve(each.this, subquery=self._values.place, alias=alias))
        return copied

    def _groups(self, group: exp.Group | None, items: SelectList) -> Grouping:
        # Groups are found by equal links, so that what only stands behind one is asked here.
        inner = tuple(each for each in self._links if reads(each) <= set(columns(self._node)))
        self._links = tuple(each for each in self._links if each not in inner)
        self._node = LogicalFilter(self._node, inner) if inner else self._node
        several = self._sets is not None and not self._all_in_one
        grouping = Grouping(self._node, self._names, self._values.names, several)
        if group is None or self._all_in_one:
            return grouping

        def alias(column: exp.Column) -> exp.Expr | None:
            return None if self._scope.knows(column) else items.find(column)

        def resolve(node: exp.Expr) -> exp.Expr:
            no_windows(node, "GROUP BY")
            return self._scope.resolve(node, alias=alias)

        named: dict[exp.Expr, str] = {}
        for expression, at in group_expressions(group, items, resolve):
            own = [item.name for item in items.items if item.expression.unnest() == expression.unnest()]
            named[at] = grouping.group_by(expression, at, own[0] if own and self._context.named else "")
        if several and self._sets is not None:
            sets = tuple(frozenset(named[each.unnest()] for each in one) for one in self._sets)
            grouping.sets = GroupingSets(sets, tuple(dict.fromkeys(named.values())), self._names.fresh("grouping"))
        if not grouping.group:
            raise Refusal("there is nothing to group by: leave out GROUP BY for one row over all", group)
        return grouping

    def _grouped(self, clauses: Clauses, grouping: Grouping) -> Clauses:
        """Put the Aggregate on the rows; everything further up over its columns."""
        links = equal_links(self._links, columns(self._node))
        self._links = tuple(link.over(grouping.group_by(link.own, link.at)) for link in links)
        at = self._tree.args.get("group") or next((call for each in clauses for call in calls(each)), self._tree)
        named = self._context.named
        clauses = clauses.changed(lambda node, name: grouping.over(node, name if named else ""))
        is_global = self._all_in_one and not self._links
        self._node = grouping.aggregate(is_global=is_global, at=at, split=self._split)
        return clauses

    def _having_of_one_row(self, counts: frozenset[str] | None) -> None:
        if counts is not None and self._links:
            raise Refusal(
                "HAVING in a subquery that reads columns of the query around it needs a GROUP BY: without one, compare "
                "the value, (SELECT COUNT(*) …) > 0",
                self._tree.args["having"],
            )

    def _numbered(self, clauses: Clauses) -> Clauses:
        """Number the rows for window functions, and filter by QUALIFY."""
        if any(each.find(exp.Window) for each in clauses):
            self._no_links("a window function")
        named: dict[str, exp.Expr] = {item.name: item.expression for item in clauses.items.items}
        others = exp.Tuple(expressions=[each for each in (clauses.qualify, clauses.order) if each is not None])
        self._node, numbers = number_rows(self._node, {**named, "": others}, self._names)
        clauses = clauses.changed(lambda node, _: replaced(node, numbers)) if numbers else clauses
        if clauses.qualify is not None:
            self._node = LogicalFilter(self._node, conjuncts(clauses.qualify))
        return clauses

    def _distinct(self, items: SelectList, *, limited: bool) -> Selected:
        self._no_links("DISTINCT")
        no_split(self._split)
        names: Mapping[str, str] = {item.name: self._names.claim(item.name) for item in items.items}
        project = LogicalProject(self._node, {names[item.name]: item.expression for item in items.items})
        node = without_duplicates(project, self._tree)
        found = Selected(node, {name: resolved(own, like=self._tree) for name, own in names.items()})
        return top_of_result(found, self._tree, self._names) if limited else found

    def _no_links(self, clause: str) -> None:
        if self._links:
            raise Refusal(
                f"a subquery with {clause} cannot read columns of the query around it: write it as a JOIN with a "
                f"derived table",
                self._links[0],
            )
