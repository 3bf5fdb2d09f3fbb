"""What the parts of the front end share: where a query stands, what names in FROM can mean, what a query becomes."""

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
    """What names in FROM can mean outside of the query: tables, made when asked for, and the parsed views."""

    tables: tuple[str, ...]
    source: Callable[[str], SourceTable]
    views: Mapping[str, Callable[[], exp.Expr]]


@dataclass(frozen=True)
class Named:
    """A query in WITH: the names of its columns if they are given, and the queries in WITH that it sees itself.

    `depth` is how many queries are around the one whose WITH it is.
    """

    query: exp.Expr
    columns: tuple[str, ...]
    with_: Mapping[str, Named]
    depth: int = 0


@dataclass(frozen=True)
class Context:
    """Where a query stands.

    `path` is what the names of its relations begin with, empty or ending with a dot. `outer` is what names mean in the
    query around a subquery, `around` the rows there, and `domain` those of their columns whose values the subquery's
    rows are to be joined with. `named` says that its columns need names, because somebody further up uses them, and
    `result` that they are those of the sink.
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
        """How many queries are around this one."""
        return 0 if self.outer is None else self.outer.depth

    def from_(self, path: str, named: Named) -> Context:
        """The place of a query in FROM, which sees the queries around this one, but not what stands beside it."""
        outer = None if self.outer is None else self.outer.within(named.depth)
        return Context(path, named.with_, outer, self.around, named=not named.columns, result=False)

    def below(self, path: str, outer: Scope, around: LogicalNode, *, named: bool = False) -> Context:
        """The place of a subquery that reads columns of the rows `around` it."""
        return replace(self, path=path, outer=outer, around=around, domain=(), named=named, result=False)


@dataclass(frozen=True)
class Selected:
    """What a query becomes: rows, and its columns as expressions over them.

    `links` are the conditions of a subquery that read columns of the query around it, the others being columns of
    `input`. `single` says that there is at most one row (for each row of the outer query, by the links). `empty`
    is what stands for columns of `input` that are not NULL where no row is: not None for an aggregate without GROUP BY.
    """

    input: LogicalNode
    outputs: Mapping[str, exp.Expr]
    links: tuple[exp.Expr, ...] = ()
    single: bool = False
    empty: Mapping[str, exp.Expr] | None = None


class Queries(Protocol):
    """What the parts ask of the whole: the plan of another query."""

    @property
    def catalog(self) -> Catalog:
        """Tables and views."""
        ...

    def select(self, tree: exp.Expr, context: Context) -> Selected:
        """The rows and columns of a query. Raises Refusal."""
        ...

    def invent(self, path: str, stem: str) -> str:
        """A path that no relation has, for a query that has no alias: `exists_1.`."""
        ...

    def note(self, path: str) -> None:
        """Remember the path of a relation, so that hints can name it."""
        ...


def alias_for(queries: Queries, context: Context, stem: str) -> str:
    """An alias that no relation of a query has, for one that was given none."""
    return queries.invent(context.path, stem).removeprefix(context.path).rstrip(".")


@dataclass
class Names:
    """Names for computed columns of one SELECT, which are readable, and none of them the name of another column."""

    path: str
    _taken: set[str] = field(default_factory=set)

    def reserve(self, names: list[str]) -> None:
        """Keep names free for those who come with `claim`."""
        self._taken.update(name.lower() for name in names)

    def claim(self, name: str) -> str:
        """The column called as the user calls it."""
        return self.path + name

    def fresh(self, stem: str) -> str:
        """A column called `stem`, with a number behind it if there is one already."""
        number, name = 1, stem
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name.lower())
        return self.path + name


def check_reach(links: tuple[exp.Expr, ...], known: set[str]) -> None:
    """Refuse conditions on columns of a query that is not right around the subquery."""
    for link in links:
        for column in link.find_all(exp.Column):
            if column.name not in known:
                raise Unreachable(
                    "this column cannot be used here: a subquery of a GROUP BY query reads columns that are grouped",
                    column,
                    {column.name},
                )
