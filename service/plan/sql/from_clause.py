"""The FROM clause: joins its relations from left to right. `sql.relations` plans each relation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from sqlglot import exp

from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject, filtered
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.conjuncts import conjuncts, reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Queries, alias_for, check_reach
from rowkind.service.plan.sql.correlations import beyond
from rowkind.service.plan.sql.domain import domain
from rowkind.service.plan.sql.generators import generator, in_from
from rowkind.service.plan.sql.grouping import no_aggregates
from rowkind.service.plan.sql.lookups import Lookup, looked_up, lookup
from rowkind.service.plan.sql.relations import column_aliases, relation_of, renamed
from rowkind.service.plan.sql.scope import Merged, Relation, Scope, is_subquery
from rowkind.service.plan.sql.select_without_from import one_row
from rowkind.service.plan.sql.subqueries import Subqueries, where


@dataclass(frozen=True)
class Joined:
    """The part of the FROM clause that has been planned so far.

    - `node`: its rows; None before the first relation.
    - `scope`: the names that can be used after it.
    - `links`: conditions that read the outer query. They come from derived tables or from a domain.
    - `single`: at most one row satisfies the links for each outer row.
    """

    node: LogicalNode | None
    scope: Scope
    links: tuple[exp.Expr, ...] = ()
    single: bool = False

    @property
    def rows(self) -> LogicalNode:
        """The rows; `node` must not be None."""
        assert self.node is not None, "FROM has at least one relation"
        return self.node


def from_clause(tree: exp.Select, context: Context, queries: Queries) -> Joined:
    """Return the rows of a SELECT's FROM clause.

    A SELECT without FROM has one row or, if it has a domain, one row for each of the domain's rows. Raises Refusal.
    """
    first = tree.args.get("from_")
    # A LATERAL VIEW comes after all joins, and is planned like one more join.
    joins = [*(tree.args.get("joins") or []), *(tree.args.get("laterals") or [])]
    start = Joined(None, Scope((), outer=context.outer), single=True)
    if not context.domain:
        return replace(start, node=one_row(tree)) if first is None else _chain(start, first, joins, context, queries)
    found = domain(context, queries.invent(context.path, "around"), tree)
    around = Joined(found.node, replace(start.scope, domain=found.names), single=True)
    if first is None:
        return replace(around, links=found.links)
    if any(_kind(join) in ("right", "full") for join in joins):
        # If the domain were the first relation, the join would null-pad it, and no ON clause could use its columns.
        rows = _chain(start, first, joins, context, queries)
        scope = replace(rows.scope, domain=found.names)
        on = tuple(map(scope.own, rows.links))
        both = LogicalJoin(LogicalInput(found.node), LogicalInput(rows.rows), on, "inner", tree)
        rows = Joined(both, scope, on)
    else:
        rows = _chain(around, first, joins, context, queries)
    own = columns(rows.rows).keys()
    if any(not reads(each) <= own for each in rows.links):
        raise beyond(rows.links, own)
    return replace(rows, links=found.links)


def _chain(start: Joined, first: exp.Expr, joins: list[exp.Join], context: Context, queries: Queries) -> Joined:
    rows = _joined(start, exp.Join(this=first.this), context, queries)
    for join in joins:
        rows = _joined(rows, join, context, queries)
    return rows


def _joined(left: Joined, join: exp.Join, context: Context, queries: Queries) -> Joined:
    """Return the FROM clause's rows so far, joined with the next relation, which follows JOIN or a comma."""
    if (found := generator(join)) is not None:
        # The first relation in FROM can refer only to the outer query.
        before = one_row(join) if left.node is None else left.node
        node, scope = in_from(found, before, left.scope, context, queries)
        return Joined(node, scope, left.links)
    no_aggregates(join.args.get("on"), "the ON clause")
    if isinstance(join.this, exp.Lateral):
        return _lateral(left, join, context, queries)
    if (asked := lookup(join)) is not None:
        return _lookup(*asked, left, context, queries)
    right = _item(join.this, context, queries)
    if left.node is not None:
        return _pairs(left, right, join, context, queries)
    return Joined(right.node, _beside(left.scope, right.scope, join.this), right.links, left.single and right.single)


def _pairs(left: Joined, right: Joined, join: exp.Join, context: Context, queries: Queries) -> Joined:
    """Return the FROM clause's rows so far, joined with the rows of `right`."""
    scope, kind = _beside(left.scope, right.scope, join.this), _kind(join)
    asks: list[exp.Expr] = []
    using = join.args.get("using") or (_shared(left.scope, right.scope) if join.args.get("method") else None)
    if using:
        on, merged = _using(using, kind, left.scope, right.scope)
        known = {each.name.lower(): each for each in (*scope.merged, *merged)}
        scope = replace(scope, merged=tuple(known.values()))
    else:
        written = conjuncts(join.args.get("on"))
        asks = [each for each in written if any(map(is_subquery, each.walk()))]
        on = tuple(scope.resolve(each) for each in written if each not in asks)
        if kind != "inner":
            left, right, answers = _with_answers(left, right, asks, context, queries)
            asks, on = [], (*on, *answers)
    said, links = _linked(left, right, kind, join)
    single = left.single and (right.single or kind in ("semi", "anti")) and kind not in ("right", "full")
    node = LogicalJoin(LogicalInput(left.rows), LogicalInput(right.rows), (*said, *on), kind, join)
    if asks:
        # In an inner join, a condition means the same in ON as in WHERE.
        kept, outer = where(exp.and_(*asks), node, scope, context, queries)
        if outer:
            raise beyond(outer, columns(node).keys())
        return Joined(kept, scope, links, single)
    if node.filters_left:
        spent = tuple(relation.alias for relation in right.scope.relations)
        scope = replace(left.scope, spent=(*left.scope.spent, *spent))
    return Joined(node, scope, links, single)


def _with_answers(
    left: Joined, right: Joined, asks: list[exp.Expr], context: Context, queries: Queries
) -> tuple[Joined, Joined, list[exp.Expr]]:
    """Extend a join's inputs with the results of the subqueries in its ON clause.

    Return both inputs, and the conditions rewritten over the added columns. Raises Refusal.
    """
    sides, answers = [left, right], []
    for each in asks:
        of = [number for number, side in enumerate(sides) if _reads(each, side.scope)]
        if len(of) > 1:
            raise Refusal(
                "in an outer join's ON clause, a condition with a subquery can read only one side of the join: join "
                "the other side in a derived table first",
                each,
            )
        (number,) = of or [0]
        asked = Subqueries(queries, context, sides[number].scope)
        said = sides[number].scope.resolve(each, subquery=partial(asked.place, of_condition=True))
        node, with_values = asked.join(sides[number].rows, [said])
        sides[number] = replace(sides[number], node=node)
        answers.append(with_values(said))
    return sides[0], sides[1], answers


def _reads(condition: exp.Expr, scope: Scope) -> bool:
    """Return whether a condition refers to a relation in the scope or, outside of subqueries, to a column of one."""
    inside = {table.alias_or_name.lower() for table in condition.find_all(exp.Table)}
    ours = {relation.alias.lower() for relation in scope.relations} - inside
    outside = condition.copy().transform(lambda each: exp.Null() if isinstance(each, exp.Query) else each)
    return any(column.table.lower() in ours for column in condition.find_all(exp.Column)) or any(
        not column.table and scope.knows(column) for column in outside.find_all(exp.Column)
    )


def _linked(
    left: Joined, right: Joined, kind: PhysicalJoinKind, join: exp.Join
) -> tuple[tuple[exp.Expr, ...], tuple[exp.Expr, ...]]:
    """Return the links that a join evaluates, and the links that are evaluated after the join. Raises Refusal.

    If there is a domain, its columns are columns of the left rows.
    """
    if kind in ("right", "full") and (left.links or right.links):
        raise Refusal(
            f"a derived table that is an input of a {kind.upper()} JOIN cannot read an outer query: write a LEFT JOIN, "
            "or put the join into a derived table and compare its columns outside of that table",
            join.this,
        )
    own = {*columns(left.rows), *columns(right.rows)}
    found = tuple(map(left.scope.own, right.links))
    here = tuple(each for each in found if reads(each) <= own)
    free = tuple(each for each in found if each not in here)
    if free and kind != "inner":
        raise beyond(free, own)
    return here, (*left.links, *free)


def _lookup(said: Lookup, join: exp.Join, left: Joined, context: Context, queries: Queries) -> Joined:
    """Return the FROM clause's rows so far, joined with the rows that a lookup or as-of join finds. Raises Refusal."""
    if left.node is None:
        raise Refusal(
            "FOR SYSTEM_TIME AS OF must follow JOIN: each left row looks up the right side at its own time",
            said.join.this,
        )
    right = _item(join.this, context, queries)
    if right.links:
        raise Refusal(
            "the right side of a lookup cannot read an outer query: compare its columns in the ON clause", join.this
        )
    scope = _beside(left.scope, right.scope, join.this)
    using = join.args.get("using")
    if using:
        on, merged = _using(using, "left", left.scope, right.scope)
        scope = replace(scope, merged=(*scope.merged, *merged))
        if said.at is None and said.match is None:
            # As in DuckDB, the last column in USING is the time.
            on = (*on[:-1], exp.GTE(this=on[-1].this, expression=on[-1].expression))
    else:
        on = tuple(map(scope.resolve, conjuncts(join.args.get("on"))))
    match = None if said.match is None else scope.resolve(said.match)
    at = None if said.at is None or said.by_arrival else left.scope.resolve(said.at)
    node = looked_up(replace(said, match=match), left.rows, right.rows, on, at)
    return replace(left, node=node, scope=scope)


def _beside(left: Scope, right: Scope, at: exp.Expr) -> Scope:
    """Return the scope of a join's result. Raises Refusal."""
    taken = {alias.lower() for alias in (*(other.alias for other in left.relations), *left.spent)}
    for relation in right.relations:
        if relation.alias.lower() in taken:
            raise Refusal(f"two tables in FROM have the alias {relation.alias}: give one of them another alias", at)
    return replace(left, relations=(*left.relations, *right.relations), merged=(*left.merged, *right.merged))


def _shared(left: Scope, right: Scope) -> list[exp.Expr]:
    """Return the columns that the two sides of a NATURAL JOIN have in common, as in a USING clause."""
    theirs = {name.lower() for name, _ in right.star(exp.Star())}
    mine = dict.fromkeys(name for name, _ in left.star(exp.Star()) if name.lower() in theirs)
    return [exp.to_identifier(name) for name in mine]


def _lateral(left: Joined, join: exp.Join, context: Context, queries: Queries) -> Joined:
    """Return the FROM clause's rows so far, each joined with a LATERAL subquery, which can read the row."""
    lateral = join.this
    if not isinstance(lateral.this, exp.Subquery):
        raise Refusal("LATERAL must be followed by a subquery: write LATERAL (SELECT …) AS name", lateral)
    kind = _kind(join)
    if kind not in ("inner", "left"):
        raise Refusal(f"{kind.upper()} JOIN LATERAL is not supported: write CROSS JOIN or LEFT JOIN LATERAL", lateral)
    if left.node is None:
        return _item(exp.Subquery(this=lateral.this.this, alias=lateral.args.get("alias")), context, queries)
    alias = lateral.alias or alias_for(queries, context, "lateral")
    path, columns_ = f"{context.path}{alias}", column_aliases(lateral)
    queries.note(path)
    inner = queries.select(lateral.this.this, context.below(f"{path}.", left.scope, left.node, named=not columns_))
    check_reach(inner.links, {*columns(left.node), *columns(inner.input)})
    names = {each: f"{path}.{each}" for each in renamed(tuple(inner.outputs), columns_, lateral)}
    outputs = dict(zip(names.values(), inner.outputs.values(), strict=True))
    scope = _beside(left.scope, Scope((Relation(alias, names),)), lateral)
    on = conjuncts(scope.resolve(join.args["on"]) if join.args.get("on") else None)
    if inner.empty is None:
        right = LogicalProject(inner.input, {each: resolved(each) for each in columns(inner.input)} | outputs)
        sides = LogicalInput(left.node), LogicalInput(right)
        joined = LogicalJoin(*sides, (*inner.links, *on), kind, lateral)
        return Joined(joined, scope, left.links, left.single and inner.single)
    # An aggregate without GROUP BY has a row for every outer row. If this row is missing, the group is empty.
    if kind == "left" and on:
        raise Refusal(
            "this subquery always returns one row: move the join's condition into the subquery, or into CASE",
            join.args["on"],
        )
    both = LogicalJoin(LogicalInput(left.node), LogicalInput(inner.input), inner.links, "left", lateral)
    found = {name: substitute(output, inner.empty) for name, output in outputs.items()}
    node = LogicalProject(both, {each: resolved(each) for each in columns(left.node)} | found)
    return replace(left, node=filtered(node, on), scope=scope)


def _item(at: exp.Expr, context: Context, queries: Queries) -> Joined:
    """Return the rows of an item in FROM, which is a relation, or joins in parentheses."""
    if isinstance(at, exp.Subquery) and isinstance(at.this, exp.Table | exp.Subquery):
        if at.alias:
            raise Refusal(
                "joins in parentheses cannot have an alias: use the aliases of their tables", at.args["alias"]
            )
        inner, nothing = at.this, Joined(None, Scope(()), single=True)
        if isinstance(inner, exp.Table) or inner.args.get("joins") or isinstance(inner.this, exp.Table | exp.Subquery):
            first = inner.copy()
            joins = inner.args.get("joins") or []
            first.set("joins", None)
            return _chain(nothing, exp.From(this=first), joins, context, queries)
    found = relation_of(at, context, queries)
    return Joined(found.node, Scope((found.relation,)), found.links, found.single)


def _kind(join: exp.Join) -> PhysicalJoinKind:
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    words = " ".join(word for word in (method, side, kind) if word)
    if kind in _HALF and side == "RIGHT":
        raise Refusal(f"{words} JOIN is not supported: swap the tables and write LEFT {kind} JOIN", join.this)
    if method not in ("", "NATURAL") or kind not in ("", "INNER", "OUTER", "CROSS", *_HALF):
        raise Refusal(f"{words} JOIN is not supported: list the columns in an ON or USING clause", join.this)
    if (side or kind in _HALF) and not (method or join.args.get("on") or join.args.get("using")):
        raise Refusal(f"{words} JOIN needs a condition: ON … or USING (…)", join.this)
    return cast("PhysicalJoinKind", kind.lower() if kind in _HALF else side.lower() or "inner")


_HALF = ("SEMI", "ANTI")


def _using(
    columns: list[exp.Expr], kind: PhysicalJoinKind, left: Scope, right: Scope
) -> tuple[tuple[exp.Expr, ...], list[Merged]]:
    """Return the equalities that USING stands for, and the merged columns that it creates. Raises Refusal."""
    on: list[exp.Expr] = []
    merged: list[Merged] = []
    for column in columns:
        if not isinstance(column, exp.Identifier):
            raise Refusal("USING takes column names: USING (a, b)", column)
        name = exp.Column(this=column.copy())
        a, b = left.resolve(name), right.resolve(name)
        on.append(exp.EQ(this=a.copy(), expression=b.copy()))
        meaning = exp.Coalesce(this=a, expressions=[b]) if kind == "full" else b if kind == "right" else a
        tables = {relation.alias for relation in (*left.relations, *right.relations) if relation.find(column.name)}
        merged.append(Merged(column.name, meaning, frozenset(tables)))
    return tuple(on), merged
