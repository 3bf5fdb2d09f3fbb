"""Plans subqueries in WHERE and in expressions as joins.

    EXISTS, IN           a semi or anti join if it is an operand of WHERE's top-level ANDs, else a mark join, which
                         adds a match flag to each row (`sql.memberships`)
    a single value       a LEFT JOIN with one of the following: an aggregate that is grouped by its links to the outer
                         query; rows that are found by their unique key; or, without links, the single row of an
                         operator that checks the number of rows. COUNT of no rows is 0, not NULL

Conditions in a subquery's WHERE clause that read the outer query become conditions of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp

from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, filtered
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalSingleRow
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.conjuncts import conjuncts, reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Queries, Selected, check_reach
from rowkind.service.plan.sql.correlations import beyond
from rowkind.service.plan.sql.empty_groups import in_each_group
from rowkind.service.plan.sql.grouping import no_aggregates
from rowkind.service.plan.sql.memberships import Asked, Membership, OneOf, asked
from rowkind.service.plan.sql.quantified import answer, summary
from rowkind.service.plan.sql.scope import Scope
from rowkind.service.plan.sql.select_list import in_call
from rowkind.service.plan.sql.windows import no_windows
from rowkind.service.plan.traits.unique_keys import unique_keys

_MORE = (
    "this subquery may return more than one row: make it an aggregate such as MAX(…) without GROUP BY, or set "
    "the whole primary key of its table equal to columns of the outer query in WHERE"
)


@dataclass(frozen=True)
class _Asked:
    """A subquery in an expression, or a predicate over a subquery, and the columns that replace this node."""

    node: exp.Expr
    path: str
    names: tuple[str, ...]
    what: Asked
    is_early: bool


@dataclass
class Subqueries:
    """The subqueries in a SELECT's expressions.

    When an expression is resolved, each of its subqueries is replaced by columns; `join` later adds these columns to
    the rows. Equal subqueries are joined once. A subquery inside an aggregate function is early: it is joined before
    rows are grouped.
    """

    queries: Queries
    context: Context
    scope: Scope
    _found: dict[str, _Asked] = field(default_factory=dict)

    @property
    def names(self) -> KeysView[str]:
        """The columns for subqueries that are not joined yet, as a live view that includes later additions."""
        return self._found.keys()

    @property
    def early(self) -> set[str]:
        """The columns for subqueries inside aggregate functions that are not joined yet."""
        return {name for name, each in self._found.items() if each.is_early}

    def place(self, node: exp.Expr, *, of_condition: bool = False) -> exp.Expr:
        """Return the expression that replaces a subquery, or a predicate over a subquery.

        `of_condition` is True if the whole expression is a condition. Raises Refusal.
        """
        if isinstance(node, exp.Any | exp.All):
            raise Refusal("a subquery with ANY or ALL must follow =, <>, <, <=, > or >=", node)
        if isinstance(node, exp.Binary) and not isinstance(node, exp.Query):
            return self._any(node, of_condition=of_condition)
        if isinstance(node, exp.Exists):
            return self._columns(node, "exists", ["found"])[0]
        if isinstance(node, exp.In):
            operands = self.operands(node)
            what = asked(node, of_condition=of_condition)
            return OneOf(this=self._columns(node, "in", ["found"], what)[0], expressions=operands)
        assert isinstance(node, exp.Query), "every subquery is a query"
        listed = 1 if node.is_star else len(node.selects)
        if listed == 1:
            return self._columns(node, "scalar", ["value"])[0]
        return exp.Tuple(expressions=self._columns(node, "scalar", [f"value_{each + 1}" for each in range(listed)]))

    def _any(self, node: exp.Binary, *, of_condition: bool) -> exp.Expr:
        """Return the replacement for a comparison with ANY, which reads an aggregate of the subquery's values."""
        operand = self.scope.resolve(node.this, subquery=self.place)
        whole = asked(node, of_condition=of_condition) != "is true"
        query = summary(node, whole=whole)
        names = [f"value_{each + 1}" for each in range(len(query.expressions))]
        found = self._columns(query, "any", names, is_early=in_call(node))
        return answer(node, operand, found, whole=whole)

    def operands(self, node: exp.In) -> list[exp.Expr]:
        """Return the operands of an IN, which are compared with the subquery's columns. Raises Refusal."""
        written = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        return [self.scope.resolve(each, subquery=self.place) for each in written]

    def _columns(
        self, node: exp.Expr, stem: str, names: list[str], what: Asked = "exactly", *, is_early: bool | None = None
    ) -> list[exp.Expr]:
        asked_ = node, what, in_call(node) if is_early is None else is_early
        same = next((each for each in self._found.values() if (each.node, each.what, each.is_early) == asked_), None)
        if same is None:
            path = self.queries.invent(self.context.path, stem)
            same = _Asked(node, path, tuple(f"{path}{name}" for name in names), *asked_[1:])
            self._found |= dict.fromkeys(same.names, same)
        return [resolved(name, like=node) for name in same.names]

    def join(
        self, node: LogicalNode, expressions: Iterable[exp.Expr], names: AbstractSet[str] | None = None
    ) -> tuple[LogicalNode, Callable[[exp.Expr], exp.Expr]]:
        """Join the rows with subqueries; return the rows, and a function that rewrites expressions to read the results.

        `expressions` are all expressions that contain subqueries. If `names` is None, all subqueries are joined;
        otherwise, only those with a column in `names`. Raises Refusal.
        """
        values: dict[str, exp.Expr] = {}
        answers: dict[str, exp.Expr] = {}

        def with_values(expression: exp.Expr) -> exp.Expr:
            answered = expression.transform(
                lambda each: (
                    answers[each.this.name].copy() if isinstance(each, OneOf) and each.this.name in answers else each
                )
            )
            return substitute(answered, values)

        one_of = {each.this.name: each for every in expressions for each in every.find_all(OneOf)}
        waiting = [each for each in self._found.values() if names is None or not names.isdisjoint(each.names)]
        for found in dict.fromkeys(waiting):
            self._found = {name: each for name, each in self._found.items() if each != found}
            context, at = self.context.below(found.path, self.scope, node), found.node
            match at:
                case exp.Exists():
                    inner = self.queries.select(at.this, context)
                    check_rows(inner, node, at)
                    (name,) = found.names
                    node = LogicalJoin(
                        LogicalInput(node), LogicalInput(inner.input), inner.links, "mark", at, answer=name
                    )
                case exp.In():
                    inner = in_each_group(self.queries.select(at.args["query"], context), context, self.queries, at)
                    (name,) = found.names
                    operands = [with_values(each) for each in one_of[name].expressions]
                    check_rows(inner, node, at, len(operands))
                    node, answers[name] = Membership(node, operands, inner, found.path, at).answered(name, found.what)
                case _:
                    node, more = _with_values(node, self.queries.select(at, context), found)
                    values |= more
        return node, with_values


def check_rows(inner: Selected, around: LogicalNode, test: exp.Expr, operands: int | None = None) -> None:
    """Refuse an IN or EXISTS with a subquery that cannot be joined.

    `operands` is the number of operands of an IN, and None for an EXISTS.
    """
    if inner.empty is not None and operands is None:
        raise Refusal(
            "EXISTS is always true for an aggregate without GROUP BY, which always returns a row: compare its value, "
            "as in (SELECT COUNT(*) …) > 0",
            test,
        )
    if operands is not None and operands != len(inner.outputs):
        raise Refusal(
            f"both sides of IN must have the same number of columns, but they have {operands} and {len(inner.outputs)}",
            test,
        )
    check_reach(inner.links, {*columns(around), *columns(inner.input)})


def _with_values(node: LogicalNode, inner: Selected, found: _Asked) -> tuple[LogicalNode, dict[str, exp.Expr]]:
    """Join the rows with a subquery that returns one row; return the rows, and expressions for its columns."""
    if len(inner.outputs) != len(found.names):
        raise Refusal("a subquery used as a value must have exactly one column", found.node)
    if inner.empty is not None:
        # A missing row means an empty group. The value is computed after the join, where missing counts become 0.
        right = inner.input
        meanings = {
            name: substitute(output, inner.empty)
            for name, output in zip(found.names, inner.outputs.values(), strict=True)
        }
    else:
        rows = inner.input if inner.single or _found_by_key(inner) else _counted(inner, found.node)
        below = {each: resolved(each) for each in columns(rows)}
        right = LogicalProject(rows, {**below, **dict(zip(found.names, inner.outputs.values(), strict=True))})
        meanings = {}
    check_reach(inner.links, {*columns(node), *columns(right)})
    return LogicalJoin(LogicalInput(node), LogicalInput(right), inner.links, "left", found.node), meanings


def _counted(inner: Selected, at: exp.Expr) -> LogicalNode:
    """Return a node that checks in every batch that a scalar subquery has at most one row.

    Raises Refusal if the subquery is correlated.
    """
    if inner.links:
        raise Refusal(_MORE, at)
    return LogicalSingleRow(LogicalInput(inner.input), at)


def where(
    condition: exp.Expr,
    node: LogicalNode,
    scope: Scope,
    context: Context,
    queries: Queries,
    *,
    links: Sequence[exp.Expr] = (),
) -> tuple[LogicalNode, tuple[exp.Expr, ...]]:
    """Return the rows that satisfy WHERE, and the links: conditions that read outer columns. Raises Refusal.

    `links` are the links from the FROM clause. A condition that may fail and follows a link is also returned as a link.
    """
    no_windows(condition, "WHERE")
    no_aggregates(condition, "WHERE")
    subqueries = Subqueries(queries, context, scope)
    place = partial(subqueries.place, of_condition=True)
    parts = [
        each if _predicate(each) is not None else scope.resolve(each, subquery=place, outer=True)
        for each in conjuncts(condition)
    ]
    tests = [each for each in parts if _predicate(each) is not None]
    plain = [each for each in parts if _predicate(each) is None]
    own = {*columns(node), *subqueries.names}
    links = [*links]
    for each in plain:
        is_link = not reads(each) <= own
        is_late = bool(reads(each) & subqueries.names)
        if is_link and is_late:
            raise beyond([each], own)
        if is_link or (links and not is_late and may_fail(each)):
            links.append(each)
    late = _late(parts, subqueries.names)
    node = filtered(node, [each for each in plain if each not in links and each not in late])
    for each in tests:
        node = _tested(each, node, scope, context, queries)
    node, with_values = subqueries.join(node, late)
    return filtered(node, [with_values(each) for each in late if each not in links]), tuple(links)


def _late(parts: Sequence[exp.Expr], values: AbstractSet[str]) -> list[exp.Expr]:
    """Return the conditions to evaluate after all subqueries.

    These conditions read a subquery's value, or they may fail and follow a subquery.
    """
    late: list[exp.Expr] = []
    guarded = False
    for each in parts:
        is_test = _predicate(each) is not None
        if not is_test and (reads(each) & values or (guarded and may_fail(each))):
            late.append(each)
        guarded = guarded or is_test or bool(late)
    return late


def _predicate(node: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """Return the EXISTS or IN in a conjunct and whether it is negated, or None for any other kind of conjunct."""
    node, negated = node.unnest(), False
    while isinstance(node, exp.Not):
        node, negated = node.this.unnest(), not negated
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        return node, negated
    return None


def _tested(condition: exp.Expr, node: LogicalNode, scope: Scope, context: Context, queries: Queries) -> LogicalNode:
    """Return the rows for which a conjunct, which is an EXISTS or IN or the negation of one, is true."""
    found = _predicate(condition)
    assert found is not None, "the caller has found the predicate"
    test, negated = found
    if not isinstance(test, exp.In):
        path = queries.invent(context.path, "exists")
        inner = queries.select(test.this, context.below(path, scope, node))
        check_rows(inner, node, test)
        kind: PhysicalJoinKind = "anti" if negated else "semi"
        return LogicalJoin(LogicalInput(node), LogicalInput(inner.input), inner.links, kind, test)
    path = queries.invent(context.path, "in")
    subqueries = Subqueries(queries, context, scope)
    operands = subqueries.operands(test)
    node, with_values = subqueries.join(node, operands)
    mine = [with_values(each) for each in operands]
    place = context.below(path, scope, node)
    inner = in_each_group(queries.select(test.args["query"], place), place, queries, test)
    check_rows(inner, node, test, len(mine))
    membership = Membership(node, mine, inner, path, test)
    return membership.false() if negated else membership.true()


def _found_by_key(inner: Selected) -> bool:
    """Return whether links and equalities with constants determine all columns of a unique key of a subquery's rows."""
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
