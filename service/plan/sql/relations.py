"""Plans the relations in FROM: tables, views, queries in WITH, derived tables, and table functions over any of these.

Views, queries in WITH and derived tables are expanded where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Named, Queries, alias_for
from rowkind.service.plan.sql.empty_groups import in_each_group
from rowkind.service.plan.sql.match_recognize import matched
from rowkind.service.plan.sql.parse import values_query
from rowkind.service.plan.sql.processing_time import with_stamp
from rowkind.service.plan.sql.scope import Relation, Scope, near
from rowkind.service.plan.sql.time_windows import WindowFunction, window_function, with_windows
from rowkind.service.plan.sql.unsupported_dialects import no_relation
from rowkind.service.plan.sql.watermark_clause import clause_of, not_of_a_table, with_time
from rowkind.service.plan.sql.windows import is_arrival
from rowkind.service.plan.syntax import MatchClause, sql_text
from rowkind.service.plan.traits.unique_keys import unique_keys
from rowkind.service.plan.view import View


def with_queries(tree: exp.Expr, context: Context) -> dict[str, Named]:
    """Return the WITH queries that a query can read: its own, and those of enclosing queries. Raises Refusal."""
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
            raise Refusal(
                f"two queries in WITH are named {table.alias}: give one of them another name", table.args["alias"]
            )
        own.add(name)
        # A query in WITH can read the queries before it, but not itself or later queries.
        known = {**known, name: Named(table.this, column_aliases(table), known, context.depth)}
    return known


@dataclass(frozen=True)
class Related:
    """A planned relation: its rows, its names in the SQL, and its links to the query that encloses the SELECT.

    The links may read columns of the rows that have no name in the SQL. `single` is True if at most one row satisfies
    the links for each outer row.
    """

    node: LogicalNode
    relation: Relation
    links: tuple[exp.Expr, ...] = ()
    single: bool = False


def relation_of(at: exp.Expr, context: Context, queries: Queries) -> Related:
    """Plan a relation in FROM. Raises Refusal."""
    clause = clause_of(at)
    if (windows := window_function(at)) is not None:
        return _in_windows(windows, at, context, queries)
    if isinstance(at, MatchClause):
        return _matched(at, context, queries)
    if isinstance(at, exp.Values):
        at = exp.Subquery(this=values_query(at), alias=at.args.get("alias"))
    if isinstance(at, exp.Subquery):
        _only(at, "this form of a derived table")
        alias = at.alias or alias_for(queries, context, "derived")
        named = Named(at.this, column_aliases(at), context.with_, context.depth)
        return _derived(named, alias, at, context, queries)
    if not isinstance(at, exp.Table) or not isinstance(at.this, exp.Identifier):
        raise no_relation(at)
    if at.args.get("db") or at.args.get("catalog"):
        raise Refusal(f"{sql_text(at)}: a table must be named as in the job file, without a database", at)
    _only(at, "this form of a table name")
    alias = at.alias or at.name
    name, catalog = at.name.lower(), queries.catalog
    aliases = column_aliases(at)
    views = {view.lower(): parse_view for view, parse_view in catalog.views.items()}
    if clause is not None and (name in context.with_ or name in views):
        raise not_of_a_table(clause)
    if name in context.with_:
        named = context.with_[name]
        return _derived(replace(named, columns=aliases or named.columns), alias, at, context, queries)
    if name in views:
        found = _derived(Named(views[name](), aliases, {}), alias, at, context, queries)
        assert isinstance(found.node, LogicalProject), "a derived table is a Project"
        return replace(found, node=replace(found.node, view=View(name, tuple(found.node.outputs))))
    tables = {table.lower(): table for table in catalog.tables}
    if name not in tables:
        known = [*catalog.tables, *catalog.views, *context.with_]
        raise Refusal(f"there is no table {at.name}{near(at.name, known)}", at)
    source = catalog.source(tables[name])
    scan = LogicalScan(context.path + alias, source, source.declared.names, at)
    queries.note(scan.path)
    spelled = renamed(source.declared.names, aliases, at)
    relation = Relation(
        alias, {new: scan.name(column) for new, column in zip(spelled, source.declared.names, strict=True)}
    )
    return Related(scan, relation) if clause is None else Related(*with_time(clause, scan, relation))


def _in_windows(windows: WindowFunction, at: exp.Expr, context: Context, queries: Queries) -> Related:
    """Plan a table function such as TUMBLE, which returns its input rows with their windows. Raises Refusal."""
    _only(at, "this form of a call of a table function")
    rows = windows.rows.copy()
    alias = at.alias or rows.name or alias_for(queries, context, "windows")
    rows.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    found = relation_of(rows, context, queries)
    node, relation = found.node, found.relation
    if found.links and windows.window.kind == "SESSION":
        raise Refusal(
            "SESSION cannot read rows that depend on an outer query: write PARTITION BY, and compare its column "
            "in the WHERE clause of the SELECT that reads the sessions",
            at,
        )
    if is_arrival(windows.time):
        node, stamped = with_stamp(node, windows.time, context, queries)
        (name,) = stamped.columns.values()
        time: exp.Expr = resolved(name)
    else:
        time = Scope((relation,)).resolve(windows.time)
    node, more = with_windows(windows, node, relation, time, f"{context.path}{alias}")
    columns_ = {**relation.columns, **more}
    spelled = renamed(tuple(columns_), column_aliases(at), at)
    return Related(node, Relation(alias, dict(zip(spelled, columns_.values(), strict=True))), found.links)


def _matched(at: MatchClause, context: Context, queries: Queries) -> Related:
    """Plan a MATCH_RECOGNIZE clause. Raises Refusal."""
    alias = at.alias or alias_for(queries, context, "match")
    path = f"{context.path}{alias}"
    found = relation_of(at.this, replace(context, path=f"{path}."), queries)
    if found.links:
        raise Refusal(
            "MATCH_RECOGNIZE cannot read rows that depend on an outer query: write PARTITION BY, and compare "
            "its column in the WHERE clause of the SELECT that reads the matches",
            at,
        )
    queries.note(path)
    node, names = matched(at, found.node, found.relation, path)
    spelled = renamed(tuple(names), column_aliases(at), at)
    return Related(node, Relation(alias, dict(zip(spelled, names.values(), strict=True))))


def _derived(named: Named, alias: str, at: exp.Expr, context: Context, queries: Queries) -> Related:
    path = f"{context.path}{alias}"
    queries.note(path)
    place = context.from_(f"{path}.", named)
    inner = in_each_group(queries.select(named.query, place), place, queries, at)
    spelled = renamed(tuple(inner.outputs), named.columns, at)
    names = {column: f"{path}.{column}" for column in spelled}
    # The columns of unique keys are kept for the planner, even if no name in the SQL refers to them.
    linked = set[str]().union(*map(reads, inner.links)) & columns(inner.input).keys()
    hidden = linked.union(*unique_keys(inner.input))
    outputs: dict[str, exp.Expr] = {
        names[column]: output for column, output in zip(spelled, inner.outputs.values(), strict=True)
    }
    if taken := [name for name in linked if outputs.get(name, resolved(name)) != resolved(name)]:
        spelled_ = taken[0].removeprefix(f"{path}.")
        raise Refusal(
            f"this query cannot have a column {spelled_}, because it reads another column of that name: rename one", at
        )
    outputs = outputs | {name: resolved(name) for name in sorted(hidden) if name not in outputs}
    return Related(LogicalProject(inner.input, outputs), Relation(alias, names), inner.links, inner.single)


def column_aliases(node: exp.Expr) -> tuple[str, ...]:
    """Return the column names after an alias, as in AS x(a, b)."""
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or []) if alias is not None else ()


def renamed(spelled: tuple[str, ...], names: tuple[str, ...], at: exp.Expr) -> tuple[str, ...]:
    """Return a relation's column names: `names` or, if `names` is empty, `spelled`. Raises Refusal."""
    if not names:
        return spelled
    if len(names) != len(spelled):
        raise Refusal(
            f"the number of columns is {len(spelled)}, but the number of column names after the alias is {len(names)}",
            at,
        )
    for name in names:
        if sum(name.lower() == other.lower() for other in names) > 1:
            raise Refusal(f"two columns are named {name}: give one of them another name", at)
    return names


def _only(node: exp.Expr, what: str) -> None:
    extra = [name for name, value in node.args.items() if value and name not in ("this", "alias")]
    if extra:
        raise Refusal(f"{what} is not supported ({', '.join(extra)})", node)
