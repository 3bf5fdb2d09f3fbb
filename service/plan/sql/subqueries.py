"""Subqueries in WHERE and in expressions, as joins.

    EXISTS, IN           a semi join
    NOT EXISTS           an anti join
    NOT IN               where neither side can be NULL an anti join. A subquery that reads the query around it: an anti
                         join on `(x = y) IS NOT FALSE`, since a NULL on either side is as good as a match. Else the
                         join "not in", which knows whether the subquery is empty and whether it holds a NULL
    a single value       a LEFT JOIN on an aggregate, grouped by what links it to the query around it, or on rows found
                         by their unique key. COUNT of no rows is 0 and not NULL

What a subquery's WHERE says of the query around it becomes the condition of the join.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.service.plan.columns import by_name, columns, kept
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalFilter,
    LogicalInput,
    LogicalJoin,
    LogicalNode,
    LogicalProject,
    conjuncts,
    reads,
    substitute,
)
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.scalars import compile_scalar, resolved
from rowkind.service.plan.sql.context import Context, Queries, Selected, check_reach
from rowkind.service.plan.sql.grouping import no_aggregates
from rowkind.service.plan.sql.scope import Scope
from rowkind.service.plan.sql.windows import no_windows
from rowkind.service.plan.traits.unique_keys import unique_keys

_TOP = (
    "{0} is supported in WHERE where AND holds it together with the rest: for OR or an expression, LEFT JOIN "
    "(SELECT DISTINCT …) AS x ON … and test x.… IS NOT NULL, or write one query each and UNION them"
)
_MORE = (
    "this subquery may give more than one row: make it an aggregate such as MAX(…) without GROUP BY, or let WHERE set "
    "the whole primary key of its table equal to columns of the query around it"
)


@dataclass
class ScalarSubqueries:
    """The subqueries in the expressions of one clause, each of which stands for a single value.

    While expressions are resolved, a column holds the place of each; `join` brings the columns about.
    """

    queries: Queries
    context: Context
    scope: Scope
    found: dict[str, tuple[str, exp.Expr]] = field(default_factory=dict)

    @property
    def names(self) -> KeysView[str]:
        """The columns that hold the places, also those that are still to come."""
        return self.found.keys()

    def place(self, node: exp.Expr) -> exp.Expr:
        """The column for a subquery in an expression. Raises Refusal for EXISTS and IN."""
        if not isinstance(node, exp.Query):
            if isinstance(node, exp.Any | exp.All):
                raise Refusal("ANY and ALL take no subquery here: write IN, EXISTS, or compare with MIN or MAX", node)
            raise Refusal(_TOP.format("EXISTS (…)" if isinstance(node, exp.Exists) else "IN (SELECT …)"), node)
        path = self.queries.invent(self.context.path, "scalar")
        name = f"{path}value"
        self.found[name] = (path, node)
        return resolved(name, like=node)

    def join(self, node: LogicalNode) -> tuple[LogicalNode, dict[str, exp.Expr]]:
        """The rows with the values beside them, and what stands for each place."""
        meanings: dict[str, exp.Expr] = {}
        for name, (path, tree) in self.found.items():
            inner = self.queries.select(tree, self.context.below(path, self.scope))
            if len(inner.outputs) != 1:
                raise Refusal("a subquery that stands for a value has one column", tree)
            (output,) = inner.outputs.values()
            if inner.counts is not None:
                # A missing row is an empty group: the value is computed behind the join, where counts are made 0.
                right = inner.input
                meanings[name] = _of_empty(output, inner.counts)
            else:
                if not (inner.single or _found_by_key(inner)):
                    raise Refusal(_MORE, tree)
                right = LogicalProject(
                    inner.input, {each: resolved(each) for each in columns(inner.input)} | {name: output}
                )
                meanings[name] = resolved(name, like=tree)
            check_reach(inner.links, {*columns(node), *columns(right)})
            node = LogicalJoin("left", LogicalInput(node), LogicalInput(right), inner.links, tree)
        return node, meanings


def where(
    condition: exp.Expr, node: LogicalNode, scope: Scope, context: Context, queries: Queries
) -> tuple[LogicalNode, tuple[exp.Expr, ...]]:
    """The rows that fulfil WHERE, and the conditions that read columns of the query around it. Raises Refusal.

    What may fail behind such a condition goes along with it.
    """
    no_windows(condition, "WHERE")
    no_aggregates(condition, "WHERE")
    values = ScalarSubqueries(queries, context, scope)
    parts = [
        each if _predicate(each) is not None else scope.resolve(each, subquery=values.place, outer=True)
        for each in conjuncts(condition)
    ]
    tests = [each for each in parts if _predicate(each) is not None]
    plain = [each for each in parts if _predicate(each) is None]
    own = {*columns(node), *values.names}
    links: list[exp.Expr] = []
    for each in plain:
        is_link = not reads(each) <= own
        if is_link and reads(each) & values.names:
            raise Refusal("this condition reads the query around this one and a subquery: use a derived table", each)
        if is_link or (links and may_fail(each) and not reads(each) & values.names):
            links.append(each)
    late = _late(parts, values.names)
    node = _filtered(node, [each for each in plain if each not in links and each not in late])
    for each in tests:
        node = _tested(each, node, scope, context, queries)
    node, meanings = values.join(node)
    return _filtered(node, [substitute(each, meanings) for each in late if each not in links]), tuple(links)


def _late(parts: Sequence[exp.Expr], values: AbstractSet[str]) -> list[exp.Expr]:
    """The conditions to ask behind all subqueries: those that read one's value, or may fail where one stands before."""
    late: list[exp.Expr] = []
    guarded = False
    for each in parts:
        is_test = _predicate(each) is not None
        if not is_test and (reads(each) & values or (guarded and may_fail(each))):
            late.append(each)
        guarded = guarded or is_test or bool(late)
    return late


def _filtered(node: LogicalNode, conditions: list[exp.Expr]) -> LogicalNode:
    return LogicalFilter(node, tuple(conditions)) if conditions else node


def _predicate(node: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The EXISTS or IN that a conjunct is, and whether NOT stands before it."""
    node, negated = node.unnest(), False
    while isinstance(node, exp.Not):
        node, negated = node.this.unnest(), not negated
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        return node, negated
    return None


def _tested(condition: exp.Expr, node: LogicalNode, scope: Scope, context: Context, queries: Queries) -> LogicalNode:
    """The rows for which EXISTS or IN is true."""
    found = _predicate(condition)
    assert found is not None, "the caller has found the predicate"
    test, negated = found
    compares = isinstance(test, exp.In)
    tree = test.args["query"] if compares else test.this
    path = queries.invent(context.path, "in" if compares else "exists")
    inner = queries.select(tree, context.below(path, scope))
    if inner.counts is not None and (inner.links or not compares):
        raise Refusal(
            "an aggregate without GROUP BY always has a row: compare its value, (SELECT COUNT(*) …) > 0", tree
        )
    if not compares:
        check_reach(inner.links, {*columns(node), *columns(inner.input)})
        return LogicalJoin(
            "anti" if negated else "semi", LogicalInput(node), LogicalInput(inner.input), inner.links, test
        )
    written = test.this.expressions if isinstance(test.this, exp.Tuple) else [test.this]
    if len(written) != len(inner.outputs):
        raise Refusal(f"IN compares {len(written)} with {len(inner.outputs)} columns: both need the same number", test)
    values = ScalarSubqueries(queries, context, scope)
    resolved_ = [scope.resolve(each, subquery=values.place) for each in written]
    node, meanings = values.join(node)
    mine = [substitute(each, meanings) for each in resolved_]
    check_reach(inner.links, {*columns(node), *columns(inner.input)})
    return _not_in(mine, inner, node, path, test) if negated else _in(mine, inner, node, test)


def _in(mine: list[exp.Expr], inner: Selected, node: LogicalNode, at: exp.Expr) -> LogicalJoin:
    equal = [exp.EQ(this=a, expression=b) for a, b in zip(mine, inner.outputs.values(), strict=True)]
    return LogicalJoin("semi", LogicalInput(node), LogicalInput(inner.input), (*equal, *inner.links), at)


def _not_in(mine: list[exp.Expr], inner: Selected, node: LogicalNode, path: str, at: exp.Expr) -> LogicalJoin:
    pairs = list(zip(mine, inner.outputs.values(), strict=True))
    equal = [exp.EQ(this=a, expression=b) for a, b in pairs]
    if all(_never_null(a, node) and _never_null(b, inner.input) for a, b in pairs):
        return LogicalJoin("anti", LogicalInput(node), LogicalInput(inner.input), (*equal, *inner.links), at)
    if len(pairs) > 1:
        raise Refusal(
            "NOT IN with more than one column that may be NULL is not supported: write NOT EXISTS (SELECT … WHERE "
            "a = b AND …), or declare the columns NOT NULL",
            at,
        )
    if inner.links:
        false = exp.Is(this=exp.Paren(this=equal[0]), expression=exp.Boolean(this=False))
        maybe = exp.Not(this=exp.Paren(this=false))
        return LogicalJoin("anti", LogicalInput(node), LogicalInput(inner.input), (*inner.links, maybe), at)
    # Both sides as columns that are there, so that the one key reads them and nothing else.
    ((own, output),) = pairs
    right = LogicalProject(inner.input, {f"{path}value": output})
    if not reads(own):
        node = LogicalProject(node, {each: resolved(each) for each in columns(node)} | {f"{path}constant": own})
        own = resolved(f"{path}constant", like=own)
    key = exp.EQ(this=own, expression=resolved(f"{path}value", like=output))
    return LogicalJoin("not in", LogicalInput(node), LogicalInput(right), (key,), at)


def _never_null(node: exp.Expr, below: LogicalNode) -> bool:
    """Whether an expression is never NULL in rows of `below`: by its type, or because a filter removes such rows."""
    return not compile_scalar(node, by_name(kept(LogicalInput(below)))).type.nullable


def _of_empty(output: exp.Expr, counts: frozenset[str]) -> exp.Expr:
    """An expression over an aggregate where its row may be missing."""
    zero = {
        name: exp.Coalesce(this=resolved(name), expressions=[exp.Literal.number(0)]) for name in counts & reads(output)
    }
    return substitute(output, zero)


def _found_by_key(inner: Selected) -> bool:
    """Whether the links, and equalities with constants, set a whole unique key of a subquery's rows."""
    own = set(columns(inner.input))
    fixed: set[str] = set()
    conditions = list(inner.links)
    node = inner.input
    while isinstance(node, LogicalFilter):
        conditions += node.conjuncts
        node = node.input
    for each in conditions:
        bare = each.unnest()
        if isinstance(bare, exp.EQ | exp.NullSafeEQ):
            for a, b in ((bare.left.unnest(), bare.right), (bare.right.unnest(), bare.left)):
                if isinstance(a, exp.Column) and a.name in own and not reads(b) & own:
                    fixed.add(a.name)
    return any(key <= fixed for key in unique_keys(inner.input))


@dataclass(frozen=True)
class Link:
    """An equality between a column of the query around a subquery and an expression of the subquery's own."""

    outer: exp.Expr
    own: exp.Expr
    null_safe: bool
    at: exp.Expr

    def over(self, column: str) -> exp.Expr:
        """The same where the subquery's expression is a column."""
        kind = exp.NullSafeEQ if self.null_safe else exp.EQ
        return kind(this=self.outer.copy(), expression=resolved(column, like=self.own))


def equal_links(links: tuple[exp.Expr, ...], own: Mapping[str, object]) -> list[Link]:
    """The links of a subquery that groups its rows, which must be equalities. Raises Refusal."""
    found = []
    for each in links:
        bare = each.unnest()
        sides = [(bare.left, bare.right), (bare.right, bare.left)] if isinstance(bare, exp.EQ | exp.NullSafeEQ) else []
        for outer, inner in sides:
            if reads(inner) and reads(inner) <= set(own) and not reads(outer) & set(own):
                found.append(Link(outer, inner, isinstance(bare, exp.NullSafeEQ), each))
                break
        else:
            raise Refusal(
                "a subquery that aggregates can be linked to the query around it by equalities only, own column = "
                "outer column: write it as a JOIN with GROUP BY",
                each,
            )
    return found
