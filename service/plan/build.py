"""The first logical plan of a query: FROM from left to right, then WHERE, then the SELECT list.

Views, WITH and derived tables are written out where they are used. Every name is resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from service.job import duration
from service.plan.errors import Refusal
from service.plan.logical import Filter, Join, Node, Project, Scan, Side, Source, TtlHint, conjuncts
from service.plan.parse import select
from service.plan.physical import JoinKind
from service.plan.scalars import resolved
from service.plan.scope import Relation, Scope, near
from service.plan.unique_keys import unique_keys

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEEPEST = 20


@dataclass(frozen=True)
class Catalog:
    """What names in FROM can mean outside of the query: tables, made when asked for, and the parsed views."""

    tables: tuple[str, ...]
    source: Callable[[str], Source]
    views: Mapping[str, Callable[[], exp.Select]]


@dataclass
class Builder:
    """Builds the plan of one query and collects its hints."""

    catalog: Catalog
    ttl_hints: dict[str, TtlHint] = field(default_factory=dict)

    def query(self, tree: exp.Select, path: str = "", known: Mapping[str, exp.Select] | None = None) -> Project:
        """The plan of a SELECT inside of the derived table `path`. Raises Refusal."""
        if path.count(".") > _DEEPEST:
            raise Refusal("views and derived tables are nested too deeply; does a view use itself?", tree)
        with_ = dict(known or {})
        for table in _with(tree):
            with_[table.alias.lower()] = select(table.this)
        self._read_hints(tree, path)
        node, scope = self._from(tree, path, with_)
        where = tree.args.get("where")
        if where is not None and (parts := conjuncts(scope.resolve(where.this))):
            node = Filter(node, parts)
        return Project(node, _select_list(tree, scope))

    def _from(self, tree: exp.Select, path: str, with_: Mapping[str, exp.Select]) -> tuple[Node, Scope]:
        node, relation = self._relation(tree.args["from_"].this, path, with_)
        scope = Scope((relation,), {})
        for join in tree.args.get("joins") or []:
            right, relation = self._relation(join.this, path, with_)
            if any(other.alias.lower() == relation.alias.lower() for other in scope.relations):
                raise Refusal(f"two tables in FROM are called {relation.alias}: give one another alias", join.this)
            kind = _kind(join)
            before, scope = scope, Scope((*scope.relations, relation), scope.merged)
            if using := join.args.get("using"):
                on, merged = _using(using, kind, before, relation)
                scope = Scope(scope.relations, {**scope.merged, **merged})
            else:
                on = conjuncts(scope.resolve(join.args["on"]) if join.args.get("on") else None)
            node = Join(kind, Side(node), Side(right), on, join)
        return node, scope

    def _relation(self, at: exp.Expr, path: str, with_: Mapping[str, exp.Select]) -> tuple[Node, Relation]:
        if isinstance(at, exp.Subquery):
            _only(at, ("this", "alias"), "this form of a derived table")
            if not at.alias:
                raise Refusal("a derived table needs an alias: (SELECT …) AS name", at)
            return self._derived(select(at.this), at.alias, path, with_)
        if not isinstance(at, exp.Table):
            raise Refusal("expected a table, a view or (SELECT …) AS name in FROM", at)
        if at.args.get("db") or at.args.get("catalog"):
            raise Refusal(f"{at.sql('spark')}: tables are called as in the job file, without a database", at)
        _only(at, ("this", "alias"), "this way to name a table")
        alias = at.alias or at.name
        name = at.name.lower()
        if name in with_:
            # A query in WITH sees those before it, and neither itself nor later ones.
            earlier = {other: query for other, query in with_.items() if other != name}
            return self._derived(with_[name], alias, path, earlier)
        views = {view.lower(): parse_view for view, parse_view in self.catalog.views.items()}
        if name in views:
            return self._derived(views[name](), alias, path, {})
        tables = {table.lower(): table for table in self.catalog.tables}
        if name not in tables:
            known = [*self.catalog.tables, *self.catalog.views, *with_]
            raise Refusal(f"there is no table {at.name}{near(at.name, known)}", at)
        source = self.catalog.source(tables[name])
        scan = Scan(path + alias, source, source.declared.names, at)
        return scan, Relation(alias, {column: scan.name(column) for column in source.declared.names})

    def _derived(
        self, tree: exp.Select, alias: str, path: str, with_: Mapping[str, exp.Select]
    ) -> tuple[Node, Relation]:
        inner = self.query(tree, f"{path}{alias}.", with_)
        names = {column: f"{path}{alias}.{column}" for column in inner.outputs}
        # Columns of unique keys stay within reach of the planner, though no name in the SQL means them.
        hidden = frozenset[str]().union(*unique_keys(inner.input))
        outputs = {names[column]: output for column, output in inner.outputs.items()}
        outputs |= {name: resolved(name) for name in sorted(hidden)}
        return Project(inner.input, outputs), Relation(alias, names)

    def _read_hints(self, tree: exp.Select, path: str) -> None:
        hints = tree.args.get("hint")
        for each in hints.expressions if hints is not None else []:
            if not (isinstance(each, exp.Anonymous) and str(each.this).upper() == "STATE_TTL"):
                raise Refusal(f"the hint {each.sql('spark')} is not supported; STATE_TTL('alias' = '7d') is", each)
            for pair in each.expressions:
                if not (isinstance(pair, exp.EQ) and pair.right.is_string):
                    raise Refusal("the hint STATE_TTL is written STATE_TTL('alias' = '7d')", each)
                try:
                    hint = TtlHint(duration.parse(str(pair.right.this)), pair.left)
                    self.ttl_hints[f"{path}{pair.left.name}".lower()] = hint
                except ValueError as error:
                    raise Refusal(f"STATE_TTL: {error}", pair.right) from None


def _with(tree: exp.Select) -> list[exp.CTE]:
    with_ = tree.args.get("with_")
    if with_ is None:
        return []
    if with_.args.get("recursive"):
        raise Refusal("WITH RECURSIVE is not supported", with_)
    for table in with_.expressions:
        if table.args["alias"].args.get("columns"):
            raise Refusal("column names behind the name of a WITH query are not supported: use AS inside", table)
    return list(with_.expressions)


def _only(node: exp.Expr, arguments: tuple[str, ...], what: str) -> None:
    alias = node.args.get("alias")
    extra = [name for name, value in node.args.items() if value and name not in arguments]
    if extra or (alias is not None and alias.args.get("columns")):
        raise Refusal(f"{what} is not supported ({', '.join(extra) or 'column names behind the alias'})", node)


def _kind(join: exp.Join) -> JoinKind:
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    words = " ".join(word for word in (method, side, kind) if word)
    if kind in ("SEMI", "ANTI"):
        raise Refusal(f"{words} JOIN is not supported yet", join.this)
    if method or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise Refusal(f"{words} JOIN is not supported: write the columns in ON or USING", join.this)
    if side and not (join.args.get("on") or join.args.get("using")):
        raise Refusal(f"{words} JOIN needs a condition: ON … or USING (…)", join.this)
    return cast("JoinKind", side.lower() or "inner")


def _using(
    columns: list[exp.Expr], kind: JoinKind, left: Scope, right: Relation
) -> tuple[tuple[exp.Expr, ...], dict[str, exp.Expr]]:
    """The equalities that USING stands for, and what its columns mean afterwards."""
    on: list[exp.Expr] = []
    merged: dict[str, exp.Expr] = {}
    for column in columns:
        name = exp.Column(this=column.copy())
        a, b = left.resolve(name), Scope((right,), {}).resolve(name)
        on.append(exp.EQ(this=a.copy(), expression=b.copy()))
        merged[column.name] = exp.Coalesce(this=a, expressions=[b]) if kind == "full" else b if kind == "right" else a
    return tuple(on), merged


def _select_list(tree: exp.Select, scope: Scope) -> dict[str, exp.Expr]:
    outputs: dict[str, exp.Expr] = {}
    for item in tree.expressions:
        for name, expression in _outputs(item, scope):
            if not _NAME.fullmatch(name):
                raise Refusal(f"{name!r} cannot be a column of an Avro record: give it a name with AS", item)
            if name.lower() in {other.lower() for other in outputs}:
                raise Refusal(f"two columns of the result are called {name}: give one another name with AS", item)
            outputs[name] = expression
    return outputs


def _outputs(item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr]]:
    if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
        star = item if isinstance(item, exp.Star) else item.this
        if any(star.args.values()):
            raise Refusal("* EXCEPT is not supported yet: write the columns", item)
        return list(scope.star(item, item.table if isinstance(item, exp.Column) else ""))
    if isinstance(item, exp.Alias):
        return [(item.alias, scope.resolve(item.this))]
    if isinstance(item, exp.Column):
        return [(item.name, scope.resolve(item))]
    raise Refusal("this column of the result has no name: give it one with AS", item)
