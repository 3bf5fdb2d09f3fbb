"""Parts shared by the front end: the context of a query, the meaning of names in FROM, and the result of a query."""

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
    """The meanings of names in FROM outside the query: tables, created on demand, and parsed views."""

    tables: tuple[str, ...]
    source: Callable[[str], SourceTable]
    views: Mapping[str, Callable[[], exp.Expr]]


@dataclass(frozen=True)
class Named:
    """A query in WITH: its column names if they are given, and the queries in WITH that it can use itself.

    `depth` is the number of queries around the query whose WITH it is in.
    """

    query: exp.Expr
    columns: tuple[str, ...]
    with_: Mapping[str, Named]
    depth: int = 0


@dataclass(frozen=True)
class Context:
    """The context of a query.

    - `path`: the prefix of the names of its relations, empty or ending with a dot.
    - `outer`: the scope of the outer query, if this is a subquery.
    - `around`: the rows of the outer query.
    - `domain`: the columns of these rows whose values the subquery's rows are to be joined with.
    - `named`: the query's columns need names, because an outer query or the sink uses them.
    - `result`: the query's columns are those of the sink.
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
        """The number of queries around this query."""
        return 0 if self.outer is None else self.outer.depth

    def from_(self, path: str, named: Named) -> Context:
        """Return the context of a query in FROM.

        Such a query can read the queries around this query, but not the other relations in FROM.
        """
        outer = None if self.outer is None else self.outer.within(named.depth)
        return Context(path, named.with_, outer, self.around, named=not named.columns, result=False)

    def below(self, path: str, outer: Scope, around: LogicalNode, *, named: bool = False) -> Context:
        """Return the context of a subquery that reads columns of the rows `around` it."""
        return replace(self, path=path, outer=outer, around=around, domain=(), named=named, result=False)


@dataclass(frozen=True)
class Selected:
    """The result of a query: rows, and its columns as expressions over them.

    - `links`: conditions of a subquery that read columns of the outer query; their other columns are columns of
      `input`.
    - `single`: there is at most one row (for each outer row, given the links).
    - `empty`: expressions for columns of `input` that are not NULL if the row is missing. Not None for an aggregate
      without GROUP BY.
    """

    input: LogicalNode
    outputs: Mapping[str, exp.Expr]
    links: tuple[exp.Expr, ...] = ()
    single: bool = False
    empty: Mapping[str, exp.Expr] | None = None


class Queries(Protocol):
    """The interface of the whole front end to its parts: it plans other queries."""

    @property
    def catalog(self) -> Catalog:
        """Tables and views."""
        ...

    def select(self, tree: exp.Expr, context: Context) -> Selected:
        """Return the rows and columns of a query. Raises Refusal."""
        ...

    def invent(self, path: str, stem: str) -> str:
        """Return a path that no relation has, for a query without an alias: `exists_1.`."""
        ...

    def note(self, path: str) -> None:
        """Record the path of a relation, so that hints can name it."""
        ...


def alias_for(queries: Queries, context: Context, stem: str) -> str:
    """Return an alias that no relation of the query has, for a relation without an alias."""
    return queries.invent(context.path, stem).removeprefix(context.path).rstrip(".")


@dataclass
class Names:
    """Names for the computed columns of one SELECT: readable, and unique among its columns."""

    path: str
    _taken: set[str] = field(default_factory=set)

    def reserve(self, names: list[str]) -> None:
        """Reserve names for later calls of `claim`."""
        self._taken.update(name.lower() for name in names)

    def claim(self, name: str) -> str:
        """Return the column with the name that the user gave it."""
        return self.path + name

    def fresh(self, stem: str) -> str:
        """Return a column called `stem`, followed by a number if that name is taken."""
        number, name = 1, stem
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name.lower())
        return self.path + name


def check_reach(links: tuple[exp.Expr, ...], known: set[str]) -> None:
    """Refuse conditions on columns of a query that is not the immediate outer query. Raises Unreachable."""
    for link in links:
        for column in link.find_all(exp.Column):
            if column.name not in known:
                raise Unreachable(
                    "this column cannot be used here: in a GROUP BY query, a subquery can read only grouped columns",
                    column,
                    {column.name},
                )
