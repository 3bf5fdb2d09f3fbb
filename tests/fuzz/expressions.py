"""Random scalar expressions and conditions over the names of a scope, each of a kind.

They have the same meaning in DuckDB. Expressions that differ are left out here and compared with Spark in
`tests/spark`: the division of decimals and products of decimals except by a literal (different scales), casts that
round or fail, and texts of numbers with decimals. No expression fails on any row; divisions by a column are guarded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.fuzz.schemas import Kind


@dataclass(frozen=True)
class Name:
    """A name that an expression may read: its text, its kind, and its `type` if known."""

    text: str
    kind: Kind
    type: str = ""
    local: bool = False
    """Whether subqueries may not read it, because the name would have another meaning there."""


_LITERALS: dict[Kind, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3", "-1"),
    "decimal": ("0.5", "1.00", "2.5", "0.00", "CAST(1 AS DECIMAL(10,2))"),
    "double": ("0D", "1.0D", "2.5D", "1e1", "-1.25D"),
    "ratio": ("0.5D", "1D"),
    "string": ("'a'", "''", "'b'", "'A%'", "'é_'", "'7'"),
    "boolean": ("TRUE", "FALSE"),
    "date": ("DATE '2026-01-02'", "DATE '2026-01-04'"),
    "timestamp": ("TIMESTAMP '2026-01-02 12:00:00'", "TIMESTAMP '2026-01-01 00:00:01.5'"),
}
_CASTS: dict[Kind, str] = {
    "int": "INT",
    "decimal": "DECIMAL(10,2)",
    "double": "DOUBLE",
    "ratio": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
_COMPARISONS = ("=", "=", "<>", "<", "<=", ">", ">=", "<=>")


class Expressions:
    """A generator of expressions over some names."""

    def __init__(self, rng: random.Random, names: Sequence[Name]) -> None:
        self._rng = rng
        self._names = names

    def value(self, kind: Kind, depth: int = 1) -> str:
        """Return an expression of a kind; mostly a name."""
        rng = self._rng
        if depth <= 0 or rng.random() < 0.6:
            return self.name(kind) if rng.random() < 0.9 else self.literal(kind)
        return rng.choice((*self._of_any(kind, depth - 1), *self._of(kind, depth - 1)))()

    def name(self, kind: Kind) -> str:
        """Return a name of a kind, or a literal if there is none."""
        own = [each.text for each in self._names if each.kind == kind]
        return self._rng.choice(own) if own else self.literal(kind)

    def literal(self, kind: Kind) -> str:
        """Return a literal, rarely NULL."""
        if self._rng.random() < 0.05:
            return f"CAST(NULL AS {_CASTS[kind]})"
        return self._rng.choice(_LITERALS[kind])

    def condition(self, depth: int = 1) -> str:
        """Return a condition on one name, or a combination of conditions."""
        rng = self._rng
        if depth > 0 and rng.random() < 0.35:
            one, other = self.condition(depth - 1), self.condition(depth - 1)
            return rng.choice((f"({one} OR {other})", f"({one} AND {other})", f"NOT ({one})", f"({one} OR {other})"))
        return self.comparison(rng.choice(self._names), depth) if self._names else rng.choice(("TRUE", "TRUE", "FALSE"))

    def comparison(self, name: Name, depth: int) -> str:
        """Return a condition on a name."""
        rng, own, kind = self._rng, name.text, name.kind
        if rng.random() < 0.2:
            return f"{own} IS NOT NULL"
        no = rng.choice(("", "NOT "))
        choices = [
            f"{own} {rng.choice(_COMPARISONS)} {self._comparable(name, depth - 1)}",
            f"{own} {rng.choice(_COMPARISONS)} {self._comparable(name, depth - 1)}",
            f"{own} IS {no}NULL",
            f"{own} {no}IN ({self._comparable(name, 0)}, {self.literal(kind)})",
            f"{own} {no}BETWEEN {self._comparable(name, 0)} AND {self.literal(kind)}",
            f"{own} IS {no}DISTINCT FROM {self._comparable(name, 0)}",
        ]
        if kind == "string":
            choices.append(
                f"{own} {no}LIKE '{rng.choice(('a%', '%', '_', 'A!%'))}'".replace("'A!%'", "'A!%' ESCAPE '!'")
            )
        if kind == "boolean":
            choices += [own, f"{own} IS {no}{rng.choice(('TRUE', 'FALSE'))}"]
        if kind == "int" and rng.random() < 0.3:
            choices = [f"{own} {rng.choice(_COMPARISONS)} {self.value('double', depth - 1)}"]
        return rng.choice(choices)

    def _comparable(self, name: Name, depth: int) -> str:
        """Return a value to compare a name with, rarely the name itself."""
        if self._rng.random() < 0.9:
            others = [each for each in self._names if each.text != name.text]
            return Expressions(self._rng, others).value(name.kind, depth)
        return self.value(name.kind, depth)

    def _of_any(self, kind: Kind, depth: int) -> list[Callable[[], str]]:
        def value() -> str:
            return self.value(kind, depth)

        return [
            lambda: f"COALESCE({value()}, {value()})",
            lambda: f"NULLIF({self.name(kind)}, {self.literal(kind)})",
            lambda: f"CASE WHEN {self.condition(depth)} THEN {value()} ELSE {value()} END",
            lambda: f"CASE WHEN {self.condition(depth)} THEN {value()} WHEN {self.condition(0)} THEN {value()} END",
            lambda: f"IF({self.condition(depth)}, {value()}, {value()})",
            *([lambda: f"{self._rng.choice(('GREATEST', 'LEAST'))}({value()}, {value()})"] * (kind != "boolean")),
        ]

    def _of(self, kind: Kind, depth: int) -> list[Callable[[], str]]:
        rng = self._rng
        match kind:
            case "int":
                return self._integers(depth)
            case "decimal":
                return [
                    lambda: f"({self.value('decimal', depth)} {rng.choice('+-')} {self.value('decimal', depth)})",
                    lambda: f"({self.name('decimal')} * {rng.choice(('2', '0.5'))})",
                    lambda: f"({self.value('decimal', depth)} + {self.name('int')})",
                    lambda: f"ABS({self.value('decimal', depth)})",
                    lambda: f"CAST({self.name('int')} AS DECIMAL(20,2))",
                ]
            case "double":
                return [
                    lambda: f"({self.value('double', depth)} {rng.choice('+-')} {self.value('double', depth)})",
                    lambda: f"({self.value('double', depth)} * {rng.choice(('2', '0.5D'))})",
                    lambda: f"({self.value('double', depth)} + {self.name('int')})",
                    lambda: f"ABS({self.value('double', depth)})",
                    lambda: f"CAST({self.name('int')} AS DOUBLE)",
                ]
            case "ratio":
                return self._ratios(depth)
            case "string":
                return [
                    lambda: f"({self.value('string', depth)} || {self.value('string', depth)})",
                    lambda: f"{rng.choice(('UPPER', 'LOWER', 'TRIM'))}({self.value('string', depth)})",
                    lambda: f"SUBSTRING({self.value('string', depth)}, {rng.randint(1, 2)}, {rng.randint(1, 2)})",
                    lambda: f"REPLACE({self.value('string', depth)}, 'a', 'x')",
                    lambda: f"CAST({self.name(rng.choice(('int', 'boolean')))} AS STRING)",
                    lambda: f"CONCAT({self.value('string', depth)}, {self.value('string', depth)})",
                ]
            case "boolean":
                return [lambda: f"({self.condition(depth)})", lambda: f"(NOT {self.value('boolean', depth)})"]
            case "date":
                # DuckDB's DATE_ADD returns a timestamp.
                return [
                    lambda: f"CAST(DATE_ADD({self.value('date', depth)}, {rng.randint(0, 3)}) AS DATE)",
                    lambda: f"CAST({self.value('timestamp', depth)} AS DATE)",
                ]
            case "timestamp":
                return [
                    lambda: f"CAST({self.value('date', depth)} AS TIMESTAMP)",
                    lambda: f"DATE_TRUNC('{rng.choice(('DAY', 'HOUR'))}', {self.value('timestamp', depth)})",
                    lambda: f"({self.value('timestamp', depth)} + INTERVAL {rng.randint(1, 30)} HOUR)",
                ]
        raise AssertionError(kind)

    def _integers(self, depth: int) -> list[Callable[[], str]]:
        return [
            lambda: f"({self.value('int', depth)} {self._rng.choice('+-')} {self.value('int', depth)})",
            lambda: f"({self.value('int', depth)} * {self._rng.choice(('2', '-3'))})",
            lambda: f"({self.value('int', depth)} {self._rng.choice(('%', 'DIV'))} {self._rng.choice(('2', '3'))})",
            lambda: f"ABS({self.value('int', depth)})",
            lambda: f"LENGTH({self.value('string', depth)})",
            lambda: f"{self._rng.choice(('YEAR', 'MONTH', 'DAY'))}({self.value('date', depth)})",
            lambda: f"DATEDIFF({self.value('date', depth)}, {self.value('date', depth)})",
            lambda: f"CAST({self.name('boolean')} AS INT)",
            lambda: f"TRY_CAST({self.name('string')} AS INT)",
        ]

    def _ratios(self, depth: int) -> list[Callable[[], str]]:
        ratios: list[Callable[[], str]] = [
            lambda: f"({self.value('double', depth)} / {self._rng.choice(('3D', '2'))})",
            lambda: f"({self.value('int', depth)} / {self._rng.choice(('3', '-2'))})",
            lambda: f"({self.value('int', depth)} / NULLIF({self.name('int')}, 0))",
        ]
        return [*ratios, self._guarded, self._guarded, self._guarded]

    def _guarded(self) -> str:
        divisor, number = self.name("int"), self.name("int")
        quotient = f"{number} / {divisor}"
        return self._rng.choice(
            (
                f"CASE WHEN {divisor} <> 0 THEN {quotient} END",
                f"CASE WHEN {divisor} = 0 THEN 0D ELSE {quotient} END",
                f"CASE WHEN {divisor} <> 0 AND {quotient} > 0.5D THEN 1D ELSE 2D END",
                f"CASE WHEN {divisor} = 0 OR {quotient} > 0.5D THEN 1D ELSE 2D END",
                f"IF({divisor} <> 0, {quotient}, NULL)",
            )
        )
