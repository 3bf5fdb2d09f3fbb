"""Plans one SELECT, clause by clause in the order that SQL defines.

    FROM, WHERE                 from_clause, relations, generators, subqueries
    GROUP BY, HAVING            grouping
    window functions, QUALIFY   windows
    DISTINCT, ORDER BY … LIMIT  unions, top_rows
    the SELECT list             select_list

A name may refer to a column of FROM or of the SELECT list. So the SELECT list is resolved first. It is then rewritten
over the result of each clause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, filtered
from rowkind.service.plan.scalar.conjuncts import conjuncts, reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Names, Queries, Selected
from rowkind.service.plan.sql.correlations import beyond, correlated_columns, equal_correlations
from rowkind.service.plan.sql.empty_groups import in_each_group
from rowkind.service.plan.sql.from_clause import from_clause
from rowkind.service.plan.sql.generators import in_select
from rowkind.service.plan.sql.group_windows import GroupWindow, group_window
from rowkind.service.plan.sql.grouping import Grouping, calls, group_expressions, without_duplicates
from rowkind.service.plan.sql.grouping_sets import GroupingSets, grouping_sets
from rowkind.service.plan.sql.hints import Hints, no_split
from rowkind.service.plan.sql.outer_calls import outer_calls, with_calls
from rowkind.service.plan.sql.processing_time import with_processing_time
from rowkind.service.plan.sql.select_list import SelectList, aliases_first, aliases_last, select_list
from rowkind.service.plan.sql.subqueries import Subqueries, where
from rowkind.service.plan.sql.top_rows import TopRows, keep_top, top_of_result, top_rows
from rowkind.service.plan.sql.windows import (
    Terms,
    check_windows,
    named_windows,
    no_windows,
    number_rows,
    replaced,
    with_windows,
    within,
)

_SESSION = (
    "SESSION is allowed only in GROUP BY, or as a table function. In GROUP BY, list it with the columns that "
    "separate the sessions. Otherwise write FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL "
    "'5' MINUTE))"
)


@dataclass(frozen=True)
class Clauses:
    """A SELECT's expressions after FROM and WHERE: the SELECT list, HAVING, QUALIFY, and ORDER BY if LIMIT follows.

    `calls` are the SELECT's aggregates that subqueries in these clauses read, keyed by their column names in the
    subqueries.
    """

    items: SelectList
    having: exp.Expr | None = None
    qualify: exp.Expr | None = None
    order: exp.Order | None = None
    calls: Mapping[str, exp.Expr] = field(default_factory=dict)

    def changed(self, change: Callable[[exp.Expr, str], exp.Expr]) -> Clauses:
        """Rewrite all expressions with `change`.

        The second argument of `change` is the name of the result column, or '' for other expressions.
        """
        items = [replace(item, expression=change(item.expression, item.name)) for item in self.items.items]
        having, qualify, order = (
            None if each is None else change(each, "") for each in (self.having, self.qualify, self.order)
        )
        assert order is None or isinstance(order, exp.Order), "a copied ORDER BY is an ORDER BY"
        called = {name: change(each, "") for name, each in self.calls.items()}
        return Clauses(SelectList(tuple(items)), having, qualify, order, called)

    @property
    def need_rows(self) -> bool:
        """Whether clauses after GROUP BY filter the grouped rows, or compute window functions over them."""
        return self.having is not None or self.qualify is not None or any(each.find(exp.Window) for each in self)

    def __iter__(self) -> Iterator[exp.Expr]:
        yield from (item.expression for item in self.items.items)
        yield from (each for each in (self.having, self.qualify, self.order, *self.calls.values()) if each is not None)


@dataclass(frozen=True)
class GroupExpression:
    """A group expression, its node in the SQL, and the name of the result column with the same expression, if any."""

    expression: exp.Expr
    at: exp.Expr
    name: str


class OneSelect:
    """Plans one SELECT. Its attributes hold the part of the plan that has been built so far."""

    def __init__(self, tree: exp.Select, context: Context, hints: Hints, queries: Queries) -> None:
        self._tree = tree
        self._context = context
        self._hints = hints
        self._queries = queries
        self._names = Names(context.path)
        brought = from_clause(tree, context, queries)
        self._node, self._scope, self._links = brought.rows, brought.scope, brought.links
        if (condition := tree.args.get("where")) is not None:
            # The links to a domain are not conditions of the SQL, so WHERE need not be evaluated after them.
            before = () if context.domain else self._links
            self._node, links = where(condition.this, self._node, self._scope, context, queries, links=before)
            if links and context.domain:
                raise beyond(links, columns(self._node).keys())
            self._links = self._links if context.domain else links
        self._tree, self._node, self._scope = in_select(tree, self._node, self._scope, context, queries)
        self._tree, self._node, self._scope = with_processing_time(
            self._tree, self._node, self._scope, context, queries
        )
        self._tree, self._scope, self._window = group_window(self._tree, self._node, self._scope, context, queries)
        if self._window is not None and not self._window.is_session:
            self._node = self._window.windows.over(self._node)
        self._windows = named_windows(tree)
        group = self._tree.args.get("group")
        self._sets = grouping_sets(group) if group is not None else None
        # GROUPING SETS (()) puts all rows into one group, as if there were no GROUP BY.
        self._all_in_one = group is None or self._sets == ((),)
        # If FROM has at most one row for each outer row, then so does the result, except in these cases.
        several = self._window is not None or self._tree is not tree or bool(self._sets)
        self._single = brought.single and not several
        self._subqueries = Subqueries(queries, context, self._scope)

    def built(self) -> Selected:
        """Return the SELECT's rows and columns. Raises Refusal."""
        distinct, top = self._tree.args.get("distinct"), top_rows(self._tree)
        if distinct is not None and distinct.args.get("on"):
            raise Refusal("DISTINCT ON is not supported: filter by ROW_NUMBER() OVER (PARTITION BY …) = 1", self._tree)
        clauses, groups = self._resolved(None if distinct is not None else top)
        for each in clauses:
            check_windows(each)
        empty: Mapping[str, exp.Expr] | None = None
        if groups is not None:
            clauses, empty = self._grouped(clauses, groups)
            self._subqueries.scope = with_calls(self._scope, {name: each.name for name, each in clauses.calls.items()})
            empty = empty if self._all_in_one else None
            if clauses.need_rows or distinct is not None or top is not None:
                empty = self._in_each_group(empty)
        elif distinct is None:
            no_split(self._hints.split)
        if groups is None and self._window is not None and self._window.is_session:
            raise Refusal(_SESSION, self._window.windows.at)
        self._node, with_values = self._subqueries.join(self._node, clauses)
        clauses = clauses.changed(lambda node, _: with_values(node))
        if clauses.having is not None:
            empty = None
            self._node = LogicalFilter(self._node, conjuncts(clauses.having))
        clauses = self._numbered(clauses)
        if distinct is not None:
            return self._distinct(clauses.items, limited=top is not None)
        outputs = {item.name: item.expression for item in clauses.items.items}
        if top is not None and clauses.order is not None:
            self._node, partition, self._links = correlated_columns(self._links, self._node, self._names)
            kept = keep_top(self._node, top, clauses.order, self._names, partition)
            return Selected(kept, outputs, self._links, single=self._single or top.first == top.last)
        single = self._single or (groups is not None and self._all_in_one)
        return Selected(self._node, outputs, self._links, single=single, empty=empty)

    def _resolved(self, top: TopRows | None) -> tuple[Clauses, list[GroupExpression] | None]:
        """Return all clauses with names resolved, and the group expressions, or None if nothing is grouped."""
        tree, windows = self._tree.copy(), self._windows
        tree.set("expressions", [with_windows(each, windows) for each in tree.expressions])
        tree, written = outer_calls(tree, self._scope)
        called = {name: self._scope.resolve(each) for name, each in written.items()}
        items = select_list(tree, self._scope, self._subqueries.place, self._context)
        self._names.reserve([item.name for item in items.items])
        order = None if top is None else self._order(with_windows(top.order, windows), items)
        having, qualify = (tree.args.get(clause) for clause in ("having", "qualify"))
        group = tree.args.get("group")
        pieces = [*Clauses(items, qualify=qualify, order=order, calls=called)]
        groups = None
        if group is not None or having is not None or any(any(calls(each)) for each in pieces):
            groups = [] if group is None or self._all_in_one else self._groups(group, items)
        grouped = None if groups is None else set[str]().union(*(reads(each.expression) for each in groups))
        alias, place = aliases_last(self._scope, items, grouped), partial(self._subqueries.place, of_condition=True)
        if having is not None:
            no_windows(having.this, "HAVING")
            having = self._scope.resolve(having.this, subquery=place, alias=alias)
        if qualify is not None:
            at = qualify.this
            qualify = self._scope.resolve(with_windows(at, windows), subquery=place, alias=alias)
            if not qualify.find(exp.Window):
                raise Refusal("QUALIFY must contain a window function: move this condition to WHERE", at)
        return Clauses(items, having, qualify, order, called), groups

    def _order(self, order: exp.Expr, items: SelectList) -> exp.Order:
        """Return ORDER BY with its names resolved. A number refers to a column of the SELECT list. Raises Refusal."""
        copied = order.copy()
        assert isinstance(copied, exp.Order), "the copy of an ORDER BY is an ORDER BY"
        for each in copied.expressions:
            item = items.position(each.this)
            if item is not None:
                each.set("this", item.expression.copy())
            else:
                alias = aliases_first(items)
                each.set("this", self._scope.resolve(each.this, subquery=self._subqueries.place, alias=alias))
        return copied

    def _groups(self, group: exp.Group, items: SelectList) -> list[GroupExpression]:
        """Return the group expressions. Subqueries in them are joined before rows are grouped. Raises Refusal."""

        def alias(column: exp.Column) -> exp.Expr | None:
            return None if self._scope.knows(column) else items.find(column)

        def resolve(node: exp.Expr) -> exp.Expr:
            no_windows(node, "GROUP BY")
            return self._scope.resolve(node, subquery=self._subqueries.place, alias=alias)

        found = []
        for expression, at in self._flat(group_expressions(group, items, resolve)):
            own = [item.name for item in items.items if item.expression.unnest() == expression.unnest()]
            found.append(GroupExpression(expression, at, own[0] if own and self._context.named else ""))
        if not found:
            raise Refusal("GROUP BY has no columns: to aggregate all rows into one, remove GROUP BY", group)
        return found

    def _flat(self, groups: Iterable[tuple[exp.Expr, exp.Expr]]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """Yield the group expressions. A whole window, given as alias or number, is replaced by its start and end."""
        whole = None if self._window is None else self._scope.resolve(self._window.struct)
        for expression, at in groups:
            if self._window is not None and expression.unnest() == whole:
                yield self._scope.resolve(self._window.start), at
                yield self._scope.resolve(self._window.end), at
            else:
                yield expression, at

    def _grouped(self, clauses: Clauses, groups: list[GroupExpression]) -> tuple[Clauses, Mapping[str, exp.Expr]]:
        """Add an Aggregate to the plan, and rewrite all later expressions over its columns.

        Return the rewritten clauses, and `Grouping.of_empty`. Raises Refusal.
        """
        # Only equalities can become group columns. If a link reads no outer column, it is among the links only because
        # it follows another link. Such a condition is applied here.
        inner = tuple(each for each in self._links if reads(each) <= set(columns(self._node)))
        self._links = tuple(each for each in self._links if each not in inner)
        self._node = filtered(self._node, inner)
        grouped = [each.expression for each in groups]
        early = self._subqueries.early.union(*map(reads, grouped))
        self._node, with_values = self._subqueries.join(self._node, [*clauses, *grouped], early)
        clauses = clauses.changed(lambda node, _: with_values(node))
        several = self._sets is not None and not self._all_in_one
        if self._window is not None and self._window.is_session:
            self._in_sessions(self._window, [with_values(each) for each in grouped])
        grouping = Grouping(self._node, self._names, self._subqueries.names, several)
        columns_: dict[exp.Expr, str] = {}
        for each in groups:
            columns_[each.at] = grouping.group_by(with_values(each.expression), each.at, each.name)
        if several and self._sets is not None:
            sets = tuple(frozenset(columns_[each.unnest()] for each in one) for one in self._sets)
            grouping.sets = GroupingSets(sets, tuple(dict.fromkeys(columns_.values())), self._names.fresh("grouping"))
        links = equal_correlations(self._links, columns(self._node).keys())
        self._links = tuple(link.over(grouping.link_by(link.own, link.at)) for link in links)
        at = self._tree.args.get("group") or next((call for each in clauses for call in calls(each)), self._tree)
        named = self._context.named
        clauses = clauses.changed(lambda node, name: grouping.over(node, name if named else ""))
        is_global = self._all_in_one and not self._links
        self._node = grouping.aggregate(is_global=is_global, at=at, split=self._hints.split)
        return clauses, grouping.of_empty

    def _in_sessions(self, window: GroupWindow, grouped: Sequence[exp.Expr]) -> None:
        """Assign the rows to sessions. All rows of a session have equal values in the other group columns.

        Raises Refusal.
        """
        edges = window.windows.start, window.windows.end
        parts = [each for each in grouped if not (isinstance(each, exp.Column) and each.name in edges)]
        if len(parts) == len(grouped) or self._sets is not None:
            raise Refusal(_SESSION, window.windows.at)
        below, linked, self._links = correlated_columns(self._links, self._node, self._names)
        terms = Terms(below, self._names)
        partition = (*linked, *terms.columns(parts, "GROUP BY"))
        self._node = window.windows.over(terms.node, partition)

    def _in_each_group(self, empty: Mapping[str, exp.Expr] | None) -> Mapping[str, exp.Expr] | None:
        """Add the rows of empty groups if they would be missing.

        Return `empty` if a row may still be missing, otherwise None.
        """
        before = Selected(self._node, {}, self._links, empty=empty)
        after = in_each_group(before, self._context, self._queries, self._tree)
        self._node, self._links = after.input, after.links
        return after.empty

    def _numbered(self, clauses: Clauses) -> Clauses:
        """Add columns for the window functions, and filter by QUALIFY. Raises Refusal."""
        hint = self._hints.unbounded
        if any(each.find(exp.Window) for each in clauses):
            self._node, partition, self._links = correlated_columns(self._links, self._node, self._names)
            clauses = clauses.changed(lambda node, _: within(node, partition))
        elif hint is not None:
            raise Refusal("UNBOUNDED_RANK needs a window function, but this SELECT has none", hint)
        named: dict[str, exp.Expr] = {item.name: item.expression for item in clauses.items.items}
        others = exp.Tuple(expressions=[each for each in (clauses.qualify, clauses.order) if each is not None])
        self._node, numbers = number_rows(self._node, {**named, "": others}, self._names, unbounded=hint is not None)
        clauses = clauses.changed(lambda node, _: replaced(node, numbers)) if numbers else clauses
        if clauses.qualify is not None:
            self._node = LogicalFilter(self._node, conjuncts(clauses.qualify))
        return clauses

    def _distinct(self, items: SelectList, *, limited: bool) -> Selected:
        no_split(self._hints.split)
        below, linked, links = correlated_columns(self._links, self._node, self._names)
        names: Mapping[str, str] = {item.name: self._names.claim(item.name) for item in items.items}
        outputs = {names[item.name]: item.expression for item in items.items}
        project = LogicalProject(below, {name: resolved(name) for name in linked} | outputs)
        node = without_duplicates(project, self._tree)
        found = Selected(node, {name: resolved(own, like=self._tree) for name, own in names.items()}, links)
        return top_of_result(found, self._tree, self._names) if limited else found
