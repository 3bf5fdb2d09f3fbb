"""Resolves names in the SQL to columns of relations.

As in Spark SQL, table and column names are case-insensitive, and result columns are spelled as in the query.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.fields import field_of, with_fields
from rowkind.service.plan.scalar.functions import REFUSED
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.tuples import compared
from rowkind.service.plan.syntax import sql_text


@dataclass(frozen=True)
class Relation:
    """A table, view or derived table in FROM.

    `columns` maps the columns' names in the SQL to the columns' names in the plan. A `hidden` relation was added by the
    planner: a column of such a relation is found only if its name is qualified with the relation's alias.
    """

    alias: str
    columns: Mapping[str, str]
    hidden: bool = False

    def find(self, column: str) -> list[str]:
        """Return the plan's names of the columns that have this name in the SQL."""
        return [name for spelled, name in self.columns.items() if spelled.lower() == column.lower()]


@dataclass(frozen=True)
class Merged:
    """A column in USING: its name, its expression, and the aliases of the tables that have the column."""

    name: str
    meaning: exp.Expr
    tables: frozenset[str]

    def covers(self, relation: Relation, column: str) -> bool:
        """Return whether this USING column replaces a relation's column."""
        return column.lower() == self.name.lower() and relation.alias in self.tables


class Unreachable(Refusal):
    """The error that a subquery reads outer columns in a place where join conditions cannot provide their values.

    `columns` are the names of the outer columns in the plan. The planner catches this error where these columns are
    available, and joins their values with the subquery's rows (`sql.domain`). If that is not possible, the error
    refuses the SQL.
    """

    def __init__(self, text: str, at: exp.Expr, columns: Iterable[str]) -> None:
        self.columns = frozenset(columns)
        super().__init__(text, at)


Handler = Callable[[exp.Expr], exp.Expr]
"""A function that returns the expression that replaces a subquery."""

Alias = Callable[[exp.Column], exp.Expr | None]
"""A function that returns the expression of the SELECT list's column with a given name, or None if there is none."""


def no_subquery(node: exp.Expr) -> exp.Expr:
    """Refuse a subquery. This handler is for expressions that cannot contain subqueries."""
    raise Refusal("a subquery is not supported here: compute it in a derived table, or write it as a JOIN", node)


_CLOCKS = ("LOCALTIME", "LOCALTIMESTAMP", "CURRENT_TIME")
"""Functions that can be called without parentheses, and so are parsed as columns."""


def no_alias(_: exp.Column) -> None:
    """Return None, so that unqualified names are resolved only to columns of FROM."""


@dataclass(frozen=True)
class Scope:
    """The names that can be used in one SELECT, and the columns that the names refer to.

    - `merged`: the columns in USING. Each of these is a single column for `*` and for unqualified names.
    - `outer`: the outer query's scope.
    - `domain`: maps outer columns to the columns of this query's domain that hold the same values.
    - `spent`: the aliases of the right sides of semi and anti joins, whose columns are not visible after the join.
    """

    relations: tuple[Relation, ...]
    merged: tuple[Merged, ...] = ()
    outer: Scope | None = None
    spent: tuple[str, ...] = ()
    domain: Mapping[str, str] = field(default_factory=dict)

    def resolve(
        self,
        node: exp.Expr,
        *,
        subquery: Handler = no_subquery,
        alias: Alias = no_alias,
        outer: bool = False,
    ) -> exp.Expr:
        """Return the expression with every column resolved. Raises Refusal.

        `subquery` is called to replace each subquery in the expression. Unqualified names are first resolved by
        `alias`. Columns of the outer query are allowed only if `outer` is set.
        """

        def replaced(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Column):
                meaning = alias(each) if not each.table and not isinstance(each.this, exp.Star) else None
                return self._column(each, outer=outer) if meaning is None else _operand(meaning)
            return subquery(each) if is_subquery(each) else each

        return compared(node.transform(replaced))

    def knows(self, column: exp.Column) -> bool:
        """Return whether at least one table in FROM has a column with this unqualified name."""
        return any(relation.find(column.name) for relation in self._open)

    @property
    def depth(self) -> int:
        """The number of queries that enclose a subquery of this SELECT, including this SELECT."""
        return 1 if self.outer is None else 1 + self.outer.depth

    def within(self, depth: int) -> Scope | None:
        """Return the outer scope for a query in FROM or WITH that can read only the outermost `depth` queries.

        Return None if `depth` is 0.
        """
        if depth == 0:
            return None
        hidden = self.outer is not None and self.depth > depth
        return Scope((), outer=self.outer and self.outer.within(depth), domain=self.domain) if hidden else self

    @property
    def _open(self) -> tuple[Relation, ...]:
        """The relations whose columns need not be qualified with a table name."""
        return tuple(relation for relation in self.relations if not relation.hidden)

    def _column(self, column: exp.Column, *, outer: bool) -> exp.Expr:
        if isinstance(column.this, exp.Star):
            raise Refusal("* is allowed only in the SELECT list", column)
        bare, fields = with_fields(column, self._is_table)
        if fields and (self.knows(bare) or bare.table or (self.outer is not None and self._is_outer(bare))):
            return field_of(self._column(bare, outer=outer), fields)
        if len(fields) > 1:
            raise Refusal(f"there is no table or column {bare.name} in FROM{near(bare.name, self._names())}", column)
        if self.outer is not None and self._is_outer(column):
            found = self.outer._column(column, outer=True)  # noqa: SLF001 -- the same method of the outer scope
            found = self.own(found)
            beyond = reads(found) - set(self.domain.values())
            if beyond and not outer:
                raise Unreachable(
                    f"{sql_text(column)} is a column of the outer query, which cannot be used here: compute it "
                    "in a derived table",
                    column,
                    beyond,
                )
            return found
        relations = self._named(column) if column.table else self._open
        own = [(relation, name) for relation in relations for name in relation.find(column.name)]
        merged = self.using(column.name) if not column.table else None
        shared = [each for each in own if merged is not None and merged.covers(each[0], column.name)]
        if len(own) > max(1, len(shared)):
            choices = " or ".join(f"{relation.alias}.{column.name}" for relation, _ in own)
            raise Refusal(f"the column {column.name} is ambiguous: write {choices}", column)
        if not own:
            raise Refusal(self._unknown(column, relations), column)
        return resolved(own[0][1], like=column) if merged is None else _operand(merged.meaning)

    def own(self, node: exp.Expr) -> exp.Expr:
        """Return a resolved expression with outer columns replaced by the domain's columns with the same values."""
        return substitute(node, {name: resolved(own, like=node) for name, own in self.domain.items()})

    def using(self, column: str) -> Merged | None:
        """Return the USING column with this name, or None if there is none."""
        return next((each for each in self.merged if each.name.lower() == column.lower()), None)

    def _is_table(self, name: str) -> bool:
        """Return whether this is the name of a table in FROM, here or in an outer query."""
        here = [relation.alias for relation in self.relations] + list(self.spent)
        known = name.lower() in map(str.lower, here)
        return known or (self.outer is not None and self.outer._is_table(name))  # noqa: SLF001 -- as above

    def _names(self) -> list[str]:
        aliases = [relation.alias for relation in self._open]
        return aliases + [spelled for relation in self._open for spelled in relation.columns]

    def _is_outer(self, column: exp.Column) -> bool:
        """Return whether a column exists only in an outer query."""
        if column.table:
            here = any(relation.alias.lower() == column.table.lower() for relation in self.relations)
            scope = self.outer
            while not here and scope is not None:
                if any(relation.alias.lower() == column.table.lower() for relation in scope.relations):
                    return True
                scope = scope.outer
            return False
        if self.knows(column):
            return False
        scope = self.outer
        while scope is not None:
            if scope.knows(column):
                return True
            scope = scope.outer
        return False

    def _named(self, column: exp.Column) -> tuple[Relation, ...]:
        found = tuple(relation for relation in self.relations if relation.alias.lower() == column.table.lower())
        if not found:
            if column.table.lower() in map(str.lower, self.spent):
                raise Refusal(
                    f"{column.table} is the right side of a SEMI or ANTI JOIN, whose columns are not in the "
                    "result: write an INNER JOIN to use them",
                    column,
                )
            aliases = [relation.alias for relation in self.relations]
            raise Refusal(
                f"there is no table {column.table} in FROM{near(column.table, aliases)}", column.args["table"]
            )
        return found

    @staticmethod
    def _unknown(column: exp.Column, relations: tuple[Relation, ...]) -> str:
        if not column.table and column.name.upper() in _CLOCKS:
            return f"the function {column.name} is not supported: {REFUSED[column.name.upper()]}"
        known = [spelled for relation in relations for spelled in relation.columns]
        whose = f"{relations[0].alias} has" if len(relations) == 1 else "the query has"
        return f"{whose} no column {column.name}{near(column.name, known)}"

    def star(self, at: exp.Expr, table: str = "") -> Iterator[tuple[str, exp.Expr]]:
        """Yield the columns that `*` or `table.*` stands for. Raises Refusal."""
        relations = self._open
        if table:
            relations = tuple(relation for relation in relations if relation.alias.lower() == table.lower())
            if not relations:
                aliases = [relation.alias for relation in self.relations]
                raise Refusal(f"there is no table {table} in FROM{near(table, aliases)}", at)
        merged = () if table else self.merged
        yield from ((each.name, each.meaning.copy()) for each in merged)
        for relation in relations:
            for spelled, name in relation.columns.items():
                if not any(each.covers(relation, spelled) for each in merged):
                    yield spelled, resolved(name, like=at)


def outside_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of an expression, except those inside its subqueries."""
    return node.walk(prune=lambda each: isinstance(each, exp.Query))


def is_subquery(node: exp.Expr) -> bool:
    """Return whether a node is a subquery, or a predicate such as EXISTS over a subquery."""
    if isinstance(node, exp.Any | exp.All):
        return isinstance(node.this.unnest(), exp.Query)
    if isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE) and with_any(node) is not None:
        return True
    return isinstance(node, exp.Query | exp.Exists) or (isinstance(node, exp.In) and bool(node.args.get("query")))


def with_any(node: exp.Binary) -> exp.Query | None:
    """Return the subquery in a comparison with ANY, or None for any other node."""
    found = node.expression
    return found.this if isinstance(found, exp.Any) and isinstance(found.this, exp.Query) else None


def _operand(meaning: exp.Expr) -> exp.Expr:
    return meaning.copy() if isinstance(meaning, exp.Column) else exp.Paren(this=meaning.copy())


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: `; did you mean …?`, or a list of the known names."""
    known = list(dict.fromkeys(known))
    by_lower = {each.lower(): each for each in known}
    match = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if match:
        return f"; did you mean {by_lower[match[0]]}?"
    return f"; available: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}" if known else ""
