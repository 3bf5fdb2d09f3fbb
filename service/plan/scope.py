"""Names: which column of which relation a name in the SQL means.

As in Spark SQL, names of tables and columns are the same in upper and lower case, and the result's columns are spelled
as the query spells them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from service.plan.errors import Refusal
from service.plan.scalars import resolved


@dataclass(frozen=True)
class Relation:
    """A table, view or derived table in FROM: its alias, and its columns as spelled with their names in the plan."""

    alias: str
    columns: Mapping[str, str]

    def find(self, column: str) -> list[str]:
        """The columns called so, by their names in the plan."""
        return [name for spelled, name in self.columns.items() if spelled.lower() == column.lower()]


@dataclass(frozen=True)
class Scope:
    """What the names in one SELECT can mean.

    `merged` are the columns of USING: one column each where `*` and bare names are concerned, and what it stands for.
    """

    relations: tuple[Relation, ...]
    merged: Mapping[str, exp.Expr]

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """The expression with every column resolved. Raises Refusal."""
        for inner in node.find_all(exp.Query):
            raise Refusal("a subquery in an expression is not supported yet: write it as a JOIN", inner)
        return node.transform(lambda each: self._column(each) if isinstance(each, exp.Column) else each)

    def _column(self, column: exp.Column) -> exp.Expr:
        if column.args.get("db"):
            raise Refusal(
                f"{column.sql('spark')}: fields of a STRUCT, and names of databases, are not supported yet",
                column,
            )
        if isinstance(column.this, exp.Star):
            raise Refusal("* stands only in the SELECT list", column)
        if not column.table:
            for spelled, meaning in self.merged.items():
                if spelled.lower() == column.name.lower():
                    return meaning.copy() if isinstance(meaning, exp.Column) else exp.Paren(this=meaning.copy())
        relations = self._named(column) if column.table else self.relations
        found = [(relation, name) for relation in relations for name in relation.find(column.name)]
        if len(found) > 1:
            choices = " or ".join(f"{relation.alias}.{column.name}" for relation, _ in found)
            raise Refusal(f"the column {column.name} is ambiguous: write {choices}", column)
        if not found:
            raise Refusal(self._unknown(column, relations), column)
        return resolved(found[0][1], like=column)

    def _named(self, column: exp.Column) -> tuple[Relation, ...]:
        found = tuple(relation for relation in self.relations if relation.alias.lower() == column.table.lower())
        if not found:
            aliases = [relation.alias for relation in self.relations]
            raise Refusal(
                f"there is no table {column.table} in FROM{near(column.table, aliases)}", column.args["table"]
            )
        return found

    @staticmethod
    def _unknown(column: exp.Column, relations: tuple[Relation, ...]) -> str:
        known = [spelled for relation in relations for spelled in relation.columns]
        whose = f"{relations[0].alias} has" if len(relations) == 1 else "there is"
        return f"{whose} no column {column.name}{near(column.name, known)}"

    def star(self, at: exp.Expr, table: str = "") -> Iterator[tuple[str, exp.Expr]]:
        """The columns that `*`, or `table.*`, stands for. Raises Refusal."""
        relations = self.relations
        if table:
            relations = tuple(relation for relation in relations if relation.alias.lower() == table.lower())
            if not relations:
                aliases = [relation.alias for relation in self.relations]
                raise Refusal(f"there is no table {table} in FROM{near(table, aliases)}", at)
        else:
            for spelled, meaning in self.merged.items():
                yield spelled, meaning.copy()
        hidden = set() if table else {spelled.lower() for spelled in self.merged}
        for relation in relations:
            for spelled, name in relation.columns.items():
                if spelled.lower() not in hidden:
                    yield spelled, resolved(name, like=at)


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or what there is."""
    known = list(dict.fromkeys(known))
    by_lower = {each.lower(): each for each in known}
    match = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if match:
        return f"; did you mean {by_lower[match[0]]}?"
    return f"; there is {', '.join(known[:12])}{', …' if len(known) > 12 else ''}" if known else ""
