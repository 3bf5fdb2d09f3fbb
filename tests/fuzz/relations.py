"""Random FROM clauses: tables, queries and their joins, and the names that can be read from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.fuzz.expressions import Expressions, Name
from tests.fuzz.schemas import Kind, Table


@dataclass(frozen=True)
class Output:
    """A column of a query or table; `type` if it is known."""

    name: str
    kind: Kind
    type: str = ""


@dataclass(frozen=True)
class Query:
    """A query and its columns."""

    text: str
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class From:
    """A FROM clause, the names that can be read from it, and the columns of `*` if their names are distinct."""

    text: str
    names: tuple[Name, ...]
    star: tuple[Output, ...] = ()


class Relations:
    """A generator of FROM clauses. `derived` generates a query of a depth; `spent` counts the tables used so far."""

    def __init__(
        self,
        rng: random.Random,
        tables: Sequence[Table],
        derived: Callable[[int], Query],
    ) -> None:
        self._rng = rng
        self._tables = tables
        self._derived = derived
        self._aliases = 0
        self.with_: dict[str, Query] = {}
        self.spent = 0

    def alias(self, stem: str) -> str:
        """Return a name that no other relation or column has."""
        self._aliases += 1
        return f"{stem}{self._aliases}"

    def relation(self, depth: int) -> tuple[str, str, tuple[Output, ...]]:
        """Return a table or a query: its text, its alias and its columns."""
        rng, alias = self._rng, self.alias("r")
        if self.with_ and rng.random() < 0.5:
            name = rng.choice(list(self.with_))
            return f"{name} AS {alias}", alias, self.with_[name].outputs
        if depth > 0 and self.spent < 3 and rng.random() < 0.3:
            query = self._derived(depth - 1)
            return f"({query.text}) AS {alias}", alias, query.outputs
        self.spent += 1
        table = rng.choice(self._tables)
        columns = tuple(Output(each.name, each.kind, each.type) for each in table.columns)
        return f"{table.name} AS {alias}", alias, columns

    def from_(self, depth: int) -> From:
        """Return one relation, or a join of a few."""
        rng = self._rng
        text, alias, outputs = self.relation(depth)
        found = From(text, _names(alias, outputs), outputs)
        joins = rng.choice((0, 0, 0, 1, 1, 1, 2))
        for _ in range(joins):
            if self.spent >= 4:
                break
            found = self._joined(found, depth)
        return found if joins else _bare(rng, found, outputs)

    def _joined(self, left: From, depth: int) -> From:
        rng = self._rng
        text, alias, outputs = self.relation(depth)
        right = _names(alias, outputs)
        kind = rng.choice(
            ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI", "ANTI", "CROSS")
        )
        shared = [each.name for each in outputs if _shared(left, each)]
        if shared and rng.random() < 0.2 and kind != "CROSS":
            return self._using(left, (text, right, outputs), kind, rng.choice(shared))
        both = (*left.names, *right)
        if kind == "CROSS":
            comma = rng.random() < 0.3
            return From(f"{left.text}{',' if comma else ' CROSS JOIN'} {text}", both, _stars(left.star, outputs))
        on = self.links(left.names, right)
        if kind in ("SEMI", "ANTI"):
            return From(f"{left.text} LEFT {kind} JOIN {text} ON {on}", left.names, left.star)
        return From(f"{left.text} {kind} {text} ON {on}", both, _stars(left.star, outputs))

    def _using(
        self, left: From, right: tuple[str, tuple[Name, ...], tuple[Output, ...]], kind: str, shared: str
    ) -> From:
        text, names, outputs = right
        words = f"LEFT {kind} JOIN" if kind in ("SEMI", "ANTI") else kind
        joined = f"{left.text} {words} {text} USING ({shared})"
        if kind in ("SEMI", "ANTI"):
            return From(joined, left.names, left.star)
        own = next(each for each in left.names if each.text.rpartition(".")[2] == shared)
        rest = [each for each in (*left.names, *names) if each.text.rpartition(".")[2] != shared]
        merged = Name(shared, own.kind, own.type, local=True)
        others = [each for each in outputs if each.name != shared]
        first = [each for each in left.star if each.name == shared]
        star = _stars((*first, *(each for each in left.star if each.name != shared)), tuple(others))
        return From(joined, (merged, *rest), star)

    def links(self, left: Sequence[Name], right: Sequence[Name]) -> str:
        """Return a join condition: mostly equal columns, sometimes more conditions."""
        rng = self._rng
        pairs = [(one, other) for one in left for other in right if self._comparable(one, other)]
        expressions = Expressions(rng, (*left, *right))
        if not pairs:
            return expressions.condition()
        one, other = rng.choice([pair for pair in pairs if pair[0].kind in ("int", "string")] or pairs)
        if rng.random() < 0.5:
            one, other = other, one
        parts = [f"{one.text} {rng.choice(('=', '=', '=', '=', '=', '<=>', '<', '<>'))} {other.text}"]
        # Two conditions on the same columns would mostly contradict each other.
        others = [pair for pair in pairs if one not in pair and other not in pair]
        if others and rng.random() < 0.15:
            one, other = rng.choice(others)
            parts.append(f"{one.text} = {other.text}")
        elif others and rng.random() < 0.35:
            one, other = rng.choice(others)
            parts.append(f"{one.text} {rng.choice(('<', '<=', '<>', '>'))} {other.text}")
        if rng.random() < 0.2:
            parts.append(expressions.condition())
        rng.shuffle(parts)
        return " AND ".join(parts)

    def _comparable(self, one: Name, other: Name) -> bool:
        """Return whether two names can be compared: they have the same kind, or sometimes kinds with a common type."""
        return one.kind == other.kind or ({one.kind, other.kind} in _MEETING and self._rng.random() < 0.3)


_MEETING: tuple[set[Kind], ...] = ({"int", "double"}, {"int", "decimal"}, {"decimal", "double"}, {"date", "timestamp"})


def _names(alias: str, outputs: Sequence[Output]) -> tuple[Name, ...]:
    return tuple(Name(f"{alias}.{each.name}", each.kind, each.type) for each in outputs)


def _bare(rng: random.Random, from_: From, outputs: Sequence[Output]) -> From:
    """Return a single relation whose columns are sometimes written without its alias."""
    if rng.random() < 0.7:
        return from_
    return replace(from_, names=tuple(Name(each.name, each.kind, each.type, local=True) for each in outputs))


def _shared(left: From, output: Output) -> bool:
    own = [each for each in left.names if each.text.rpartition(".")[2] == output.name]
    return len(own) == 1 and own[0].kind == output.kind and own[0].type == output.type != ""


def _stars(left: tuple[Output, ...], right: tuple[Output, ...]) -> tuple[Output, ...]:
    both = (*left, *right)
    return both if left and len({each.name for each in both}) == len(both) else ()
