"""FROM: tables, views, queries in WITH and derived tables, joined from left to right.

Views, WITH and derived tables are written out where they are used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from rowkind.service.physical import PhysicalJoinKind
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalInput,
    LogicalJoin,
    LogicalNode,
    LogicalProject,
    LogicalScan,
    View,
    conjuncts,
)
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Named, Queries
from rowkind.service.plan.sql.grouping import no_aggregates
from rowkind.service.plan.sql.scope import Merged, Relation, Scope, near
from rowkind.service.plan.traits.unique_keys import unique_keys

_IN_FROM = "expected a table, a view or (SELECT …) AS name in FROM"


def from_clause(tree: exp.Select, context: Context, queries: Queries) -> tuple[LogicalNode, Scope]:
    """The rows that FROM brings, and what names mean behind it. Raises Refusal."""
    node, relation = _relation(tree.args["from_"].this, context, queries)
    scope = Scope((relation,), outer=context.outer)
    for join in tree.args.get("joins") or []:
        right, relation = _relation(join.this, context, queries)
        taken = [*(other.alias for other in scope.relations), *scope.spent]
        if relation.alias.lower() in map(str.lower, taken):
            raise Refusal(f"two tables in FROM are called {relation.alias}: give one another alias", join.this)
        kind = _kind(join)
        no_aggregates(join.args.get("on"), "ON")
        before, scope = scope, replace(scope, relations=(*scope.relations, relation))
        if using := join.args.get("using"):
            on, merged = _using(using, kind, before, relation)
            known = {each.name.lower(): each for each in (*scope.merged, *merged)}
            scope = replace(scope, merged=tuple(known.values()))
        else:
            on = conjuncts(scope.resolve(join.args["on"]) if join.args.get("on") else None)
        node = LogicalJoin(kind, LogicalInput(node), LogicalInput(right), on, join)
        if node.filters_left:
            scope = replace(before, spent=(*before.spent, relation.alias))
    return node, scope


def with_queries(tree: exp.Expr, context: Context) -> dict[str, Named]:
    """What is called how in a query: what was before it, and its own WITH. Raises Refusal."""
    known = dict(context.with_)
    with_ = tree.args.get("with_")
    if with_ is None:
        return known
    if with_.args.get("recursive"):
        raise Refusal("WITH RECURSIVE is not supported: write one join for each level", with_)
    own: set[str] = set()
    for table in with_.expressions:
        name = table.alias.lower()
        if name in own:
            raise Refusal(f"two queries in WITH are called {table.alias}: give one another name", table.args["alias"])
        own.add(name)
        # A query in WITH sees those before it, and neither itself nor later ones.
        known = {**known, name: Named(table.this, _column_aliases(table), known)}
    return known


def _relation(at: exp.Expr, context: Context, queries: Queries) -> tuple[LogicalNode, Relation]:
    if isinstance(at, exp.Values):
        raise Refusal("VALUES is not supported: a table of the job brings the rows", at)
    if isinstance(at, exp.Lateral):
        raise Refusal("LATERAL is not supported: write a join, and what it depends on into ON", at)
    if isinstance(at, exp.Subquery):
        if isinstance(at.this, exp.Table):
            raise Refusal("joins in parentheses are not supported: write (SELECT … FROM … JOIN …) AS name", at)
        _only(at, "this form of a derived table")
        alias = at.alias or queries.invent(context.path, "derived").removeprefix(context.path).rstrip(".")
        return _derived(Named(at.this, _column_aliases(at), context.with_), alias, at, context, queries)
    if not isinstance(at, exp.Table) or not isinstance(at.this, exp.Identifier):
        raise Refusal(_IN_FROM, at)
    if at.args.get("db") or at.args.get("catalog"):
        raise Refusal(f"{at.sql('spark')}: tables are called as in the job file, without a database", at)
    _only(at, "this way to name a table")
    alias = at.alias or at.name
    name = at.name.lower()
    columns = _column_aliases(at)
    if name in context.with_:
        named = context.with_[name]
        return _derived(Named(named.query, columns or named.columns, named.with_), alias, at, context, queries)
    catalog = queries.catalog
    views = {view.lower(): parse_view for view, parse_view in catalog.views.items()}
    if name in views:
        node, relation = _derived(Named(views[name](), columns, {}), alias, at, context, queries)
        return replace(node, view=View(name, tuple(node.outputs))), relation
    tables = {table.lower(): table for table in catalog.tables}
    if name not in tables:
        known = [*catalog.tables, *catalog.views, *context.with_]
        raise Refusal(f"there is no table {at.name}{near(at.name, known)}", at)
    source = catalog.source(tables[name])
    scan = LogicalScan(context.path + alias, source, source.declared.names, at)
    queries.note(scan.path)
    spelled = _renamed(source.declared.names, columns, at)
    return scan, Relation(
        alias, {new: scan.name(column) for new, column in zip(spelled, source.declared.names, strict=True)}
    )


def _derived(
    named: Named, alias: str, at: exp.Expr, context: Context, queries: Queries
) -> tuple[LogicalProject, Relation]:
    path = f"{context.path}{alias}"
    queries.note(path)
    inner = queries.select(named.query, Context(f"{path}.", named.with_, named=not named.columns))
    spelled = _renamed(tuple(inner.outputs), named.columns, at)
    names = {column: f"{path}.{column}" for column in spelled}
    # Columns of unique keys stay within reach of the planner, though no name in the SQL means them.
    hidden = frozenset[str]().union(*unique_keys(inner.input))
    outputs: dict[str, exp.Expr] = {
        names[column]: output for column, output in zip(spelled, inner.outputs.values(), strict=True)
    }
    outputs = outputs | {name: resolved(name) for name in sorted(hidden) if name not in outputs}
    return LogicalProject(inner.input, outputs), Relation(alias, names)


def _column_aliases(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or []) if alias is not None else ()


def _renamed(columns: tuple[str, ...], names: tuple[str, ...], at: exp.Expr) -> tuple[str, ...]:
    if not names:
        return columns
    if len(names) != len(columns):
        raise Refusal(f"there are {len(columns)} columns, but {len(names)} names for them behind the alias", at)
    for name in names:
        if sum(name.lower() == other.lower() for other in names) > 1:
            raise Refusal(f"two columns are called {name}: give one another name", at)
    return names


def _only(node: exp.Expr, what: str) -> None:
    extra = [name for name, value in node.args.items() if value and name not in ("this", "alias")]
    if extra:
        raise Refusal(f"{what} is not supported ({', '.join(extra)})", node)


def _kind(join: exp.Join) -> PhysicalJoinKind:
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    words = " ".join(word for word in (method, side, kind) if word)
    if kind in _HALF and side == "RIGHT":
        raise Refusal(f"{words} JOIN is not supported: write LEFT {kind} JOIN with the tables the other way", join.this)
    if method or kind not in ("", "INNER", "OUTER", "CROSS", *_HALF):
        raise Refusal(f"{words} JOIN is not supported: write the columns in ON or USING", join.this)
    if (side or kind in _HALF) and not (join.args.get("on") or join.args.get("using")):
        raise Refusal(f"{words} JOIN needs a condition: ON … or USING (…)", join.this)
    return cast("PhysicalJoinKind", kind.lower() if kind in _HALF else side.lower() or "inner")


_HALF = ("SEMI", "ANTI")


def _using(
    columns: list[exp.Expr], kind: PhysicalJoinKind, left: Scope, right: Relation
) -> tuple[tuple[exp.Expr, ...], list[Merged]]:
    """The equalities that USING stands for, and what its columns mean afterwards."""
    on: list[exp.Expr] = []
    merged: list[Merged] = []
    for column in columns:
        name = exp.Column(this=column.copy())
        a, b = left.resolve(name), Scope((right,)).resolve(name)
        on.append(exp.EQ(this=a.copy(), expression=b.copy()))
        meaning = exp.Coalesce(this=a, expressions=[b]) if kind == "full" else b if kind == "right" else a
        tables = {relation.alias for relation in (*left.relations, right) if relation.find(column.name)}
        merged.append(Merged(column.name, meaning, frozenset(tables)))
    return tuple(on), merged
