"""Types shared by the front end's modules: the catalog of tables and views, a query's context, and a query's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.sql.scope import Scope, Unreachable


@dataclass(frozen=True)
class Catalog:
    """The tables and views that a query can name in FROM.

    `source` returns the table with a given name. Each value of `views` is a function that returns the view's parsed
    query.
    """

    tables: tuple[str, ...]
    source: Callable[[str], SourceTable]
    views: Mapping[str, Callable[[], exp.Expr]]


@dataclass(frozen=True)
class Named:
    """A query in a WITH clause.

    - `columns`: the query's column names if the WITH clause lists them, otherwise empty.
    - `with_`: the other queries in WITH that this query can read.
    - `depth`: the number of queries that enclose the query with this WITH clause.
    """

    query: exp.Expr
    columns: tuple[str, ...]
    with_: Mapping[str, Named]
    depth: int = 0


@dataclass(frozen=True)
class Context:
    """The place of a query within the whole query.

    - `path`: the prefix of the names of the query's relations; either empty or ending with a dot.
    - `outer`: the outer query's scope, if this query is a subquery.
    - `around`: the outer query's rows.
    - `domain`: the columns of `around` whose values must be joined with the subquery's rows.
    - `named`: the query's columns need names, because an outer query or the sink refers to them.
    - `result`: the query's columns become the sink's columns.
    """

    path: str = ""
    with_: Mapping[str, Named] = field(default_factory=dict)
    outer: Scope | None = None
    around: LogicalNode | None = None
    domain: tuple[str, ...] = ()
    named: bool = True
    result: bool = True

    @property
    def depth(self) -> int:
        """The number of queries that enclose this query."""
        return 0 if self.outer is None else self.outer.depth

    def from_(self, path: str, named: Named) -> Context:
        """Return the context of a query in this query's FROM clause.

        A query in FROM can refer to the queries that enclose this query, but not to other relations in the FROM clause.
        """
        outer = None if self.outer is None else self.outer.within(named.depth)
        return Context(path, named.with_, outer, self.around, named=not named.columns, result=False)

    def below(self, path: str, outer: Scope, around: LogicalNode, *, named: bool = False) -> Context:
        """Return the context of a subquery of this query. It can read columns of `around`, this query's rows."""
        return replace(self, path=path, outer=outer, around=around, domain=(), named=named, result=False)


@dataclass(frozen=True)
class Selected:
    """A planned query: its rows, and its result columns as expressions over the rows.

    - `links`: a subquery's conditions that read columns of the outer query; all other columns in them are columns of
      `input`.
    - `single`: there is at most one row or, if there are links, at most one row for each outer row.
    - `empty`: None, except for an aggregate without GROUP BY. If its row is missing because there is nothing to
      aggregate, these expressions replace those columns of `input` whose value should not be NULL, such as counts.
    """

    input: LogicalNode
    outputs: Mapping[str, exp.Expr]
    links: tuple[exp.Expr, ...] = ()
    single: bool = False
    empty: Mapping[str, exp.Expr] | None = None


class Queries(Protocol):
    """The interface through which the front end's modules plan nested queries."""

    @property
    def catalog(self) -> Catalog:
        """The tables and views that queries can read."""
        ...

    def select(self, tree: exp.Expr, context: Context) -> Selected:
        """Return the rows and columns of a query. Raises Refusal."""
        ...

    def invent(self, path: str, stem: str) -> str:
        """Return an unused path, such as `exists_1.`, for a query without an alias."""
        ...

    def note(self, path: str) -> None:
        """Record the path of a relation, so that hints can name it."""
        ...


def alias_for(queries: Queries, context: Context, stem: str) -> str:
    """Return an unused alias for a relation that has none."""
    return queries.invent(context.path, stem).removeprefix(context.path).rstrip(".")


@dataclass
class Names:
    """Chooses names for a SELECT's computed columns. The names are readable, and unique among the SELECT's columns."""

    path: str
    _taken: set[str] = field(default_factory=set)

    def reserve(self, names: list[str]) -> None:
        """Reserve names that are passed to `claim` later, so that `fresh` does not return these names."""
        self._taken.update(name.lower() for name in names)

    def claim(self, name: str) -> str:
        """Return the name of the plan's column for a name that the user chose."""
        return self.path + name

    def fresh(self, stem: str) -> str:
        """Return an unused column name: `stem`, followed by a number if `stem` is taken."""
        number, name = 1, stem
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name.lower())
        return self.path + name


def check_reach(links: tuple[exp.Expr, ...], known: set[str]) -> None:
    """Check that links read only `known` columns. Raises Unreachable."""
    for link in links:
        for column in link.find_all(exp.Column):
            if column.name not in known:
                raise Unreachable(
                    "this column cannot be used here: in a GROUP BY query, a subquery can read only grouped columns",
                    column,
                    {column.name},
                )
