"""Random SQL over the tables of the planner's cases: made by a grammar, and valid SQL that was broken.

Half of what the grammar makes is planned; the rest is refused, for types or for what is not supported. What is broken
began as the query of a case.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import sqlglot
from sqlglot.errors import TokenError

TABLES = {
    "orders": {"order_id": "n", "customer_id": "n", "amount": "n", "status": "s", "placed": "t"},
    "payments": {"payment_id": "n", "order_id": "n", "paid": "n", "method": "s"},
    "customers": {"customer_id": "n", "name": "s", "country": "s"},
    "stock": {"shop": "n", "item": "s", "quantity": "n"},
    "moves": {"item": "s", "shop": "n", "quantity": "n"},
    "clicks": {"customer_id": "n", "page": "s", "at": "t", "day": "d"},
    "signups": {"customer_id": "n", "plan": "s"},
}
"""Columns by table, each a number, a string, a time or a day."""

_LITERALS = {
    "n": ("1", "0", "-3", "2.50", "1e2"),
    "s": ("'a'", "''", "'é%'"),
    "t": ("TIMESTAMP '2026-01-02 03:04:05'",),
    "d": ("DATE '2026-01-02'",),
}
_CARELESS = 0.04
"""How often something of another type is put where it does not belong."""

_WORDS = """
    SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT FULL OUTER CROSS SEMI ANTI NATURAL ON
    USING UNION ALL INTERSECT EXCEPT WITH AS AND OR NOT IN EXISTS IS NULL BETWEEN LIKE CASE WHEN THEN ELSE END OVER
    PARTITION ROWS RANGE QUALIFY WINDOW LATERAL VIEW EXPLODE PIVOT VALUES CAST INTERVAL DATE TIMESTAMP TRUE FALSE ANY
    ( ) ( ) , , . * + - / % || = == <> != < <= > >= <=> :: [ ] -> ; ? @ 0 1 -1 1.5 1e3 99999999999999999999 'a' '' `b`
    ROW_NUMBER() RANK() COUNT(*) SUM MAX COALESCE PROCTIME() NOW() RAND() nobody x.y.z orders o order_id é /*+ */ --
"""


class Grammar:
    """Makes queries that parse."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._aliases = 0

    def query(self, depth: int = 2) -> str:
        """A query; with less depth left a smaller one."""
        rng = self._rng
        if depth and rng.random() < 0.15:
            kind = rng.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
            return f"{self.select(depth - 1)} {kind} {self.select(depth - 1)}"
        if depth and rng.random() < 0.1:
            name = self._alias()
            return f"WITH {name} AS ({self.query(depth - 1)}) SELECT * FROM {name}"
        return self.select(depth)

    def select(self, depth: int) -> str:
        """One SELECT."""
        rng = self._rng
        source, columns = self._from(depth)
        grouped = rng.random() < 0.3
        groups = [rng.choice(list(columns)) for _ in range(rng.randrange(3))] if grouped else []
        if grouped:
            listed = [f"{each} AS {self._alias()}" for each in groups]
            listed += [f"{self._call(columns)} AS {self._alias()}" for _ in range(rng.randint(1, 2))]
        else:
            listed = [f"{self._value(columns, depth)} AS {self._alias()}" for _ in range(rng.randint(1, 4))]
            if rng.random() < 0.05:
                listed = ["*"]
        parts = [f"SELECT {'DISTINCT ' if rng.random() < 0.1 else ''}{', '.join(listed)} FROM {source}"]
        if rng.random() < 0.5:
            parts.append(f"WHERE {self._condition(columns, depth)}")
        if groups:
            parts.append(f"GROUP BY {', '.join(groups)}")
        if grouped and rng.random() < 0.4:
            parts.append(f"HAVING COUNT(*) {self._compare()} {rng.choice(('1', '(SELECT COUNT(*) FROM stock)'))}")
        if rng.random() < 0.1:
            order = rng.choice(groups or list(columns))
            parts.append(f"ORDER BY {order}{rng.choice(('', ' DESC', ' NULLS LAST'))} LIMIT 3")
        return " ".join(parts)

    def _from(self, depth: int) -> tuple[str, dict[str, str]]:
        rng = self._rng
        source, columns = self._relation(depth)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            other, more = self._relation(depth)
            kind = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "LEFT SEMI JOIN"))
            both = columns | more
            on = ""
            if kind != "CROSS JOIN":
                left = rng.choice(list(columns))
                on = f" ON {left} = {self._column(more, columns[left])}"
                if rng.random() < 0.3:
                    left = rng.choice(list(columns))
                    on += f" AND {left} {self._compare()} {self._column(more, columns[left])}"
            source = f"{source} {kind} {other}{on}"
            columns = columns if "SEMI" in kind else both
        return source, columns

    def _relation(self, depth: int) -> tuple[str, dict[str, str]]:
        rng, alias = self._rng, self._alias()
        table = rng.choice(list(TABLES))
        names = list(TABLES[table])
        columns = {f"{alias}.{name}": kind for name, kind in TABLES[table].items()}
        if depth and rng.random() < 0.3:
            number = self._alias()
            order = f"{rng.choice(names)}{rng.choice(('', ' DESC'))}"
            function = rng.choice(("ROW_NUMBER()", "ROW_NUMBER()", "RANK()", "RANK()", "DENSE_RANK()", "SUM(1)"))
            inner = f"SELECT *, {function} OVER (PARTITION BY {rng.choice(names)} ORDER BY {order}) AS {number}"
            bound = rng.choice((f"{number} <= 2", f"{number} = 1", f"{number} BETWEEN 2 AND 3", f"{number} > 1"))
            return f"(SELECT * FROM ({inner} FROM {table}) WHERE {bound}) AS {alias}", columns
        return f"{table} AS {alias}", columns

    def _column(self, columns: Mapping[str, str], kind: str) -> str:
        """A column of a kind, or a literal where there is none."""
        own = [name for name, other in columns.items() if other == kind or self._rng.random() < _CARELESS]
        return self._rng.choice(own) if own else self._literal(kind)

    def _value(self, columns: Mapping[str, str], depth: int, kind: str | None = None) -> str:
        rng = self._rng
        if kind is None or rng.random() < _CARELESS:
            kind = rng.choice("nnsstd")
        if depth <= 0 or rng.random() < 0.5:
            return self._column(columns, kind) if rng.random() < 0.8 else self._literal(kind)
        a, b = self._value(columns, depth - 1, kind), self._value(columns, depth - 1, kind)
        choices = [
            f"COALESCE({a}, {b})",
            f"NULLIF({a}, {b})",
            f"CASE WHEN {self._condition(columns, depth - 1)} THEN {a} ELSE {b} END",
            f"GREATEST({a}, {b})",
        ]
        match kind:
            case "n":
                text, time = self._value(columns, depth - 1, "s"), self._value(columns, depth - 1, "t")
                choices += [f"({a} {each} {b})" for each in "+-*/%"]
                choices += [f"ABS({a})", f"LENGTH({text})", f"YEAR({time})", f"CAST({a} AS DECIMAL(10, 2))"]
                column = rng.choice(list(TABLES["orders"]))
                choices.append(f"(SELECT MAX({column}) FROM orders)")
            case "s":
                number = self._value(columns, depth - 1, "n")
                choices += [f"UPPER({a})", f"({a} || {b})", f"CAST({number} AS STRING)", f"SUBSTRING({a}, 1, 2)"]
                choices += [f"SOUNDEX({a})", f"NO_SUCH({a})"]
            case "t":
                choices += [f"CAST({self._value(columns, depth - 1, 'd')} AS TIMESTAMP)", "CURRENT_TIMESTAMP()"]
            case "d":
                choices += [f"CAST({self._value(columns, depth - 1, 't')} AS DATE)", f"DATE_ADD({a}, 3)"]
        return rng.choice(choices)

    def _condition(self, columns: Mapping[str, str], depth: int) -> str:
        rng = self._rng
        a, kind = rng.choice(list(columns.items()))
        choices = [
            f"{a} {self._compare()} {self._value(columns, depth - 1, kind)}",
            f"{a} IS {rng.choice(('', 'NOT '))}NULL",
            f"{a} BETWEEN {self._literal(kind)} AND {self._literal(kind)}",
            f"{a} IN ({self._literal(kind)}, {self._literal(kind)})",
        ]
        if kind == "s":
            choices.append(f"{a} LIKE 'a%'")
        if depth > 0:
            some, other = self._condition(columns, depth - 1), self._condition(columns, depth - 1)
            choices += [f"({some} OR {other})", f"{some} AND {other}", f"NOT ({some})"]
            table = rng.choice(list(TABLES))
            column, inner = self._column(TABLES[table], kind), self._alias()
            no = rng.choice(("", "NOT "))
            choices += [
                f"{a} {no}IN (SELECT {column} FROM {table})",
                f"{no}EXISTS (SELECT 1 FROM {table} AS {inner} WHERE {inner}.{rng.choice(list(TABLES[table]))} = {a})",
                f"{a} > (SELECT MAX({column}) FROM {table})",
            ]
        return rng.choice(choices)

    def _call(self, columns: Mapping[str, str]) -> str:
        rng = self._rng
        call = rng.choice(("COUNT(*)", "COUNT({})", "SUM({})", "MIN({})", "MAX({})", "AVG({})", "COUNT(DISTINCT {})"))
        column = self._column(columns, "n" if call in ("SUM({})", "AVG({})") else rng.choice("nst"))
        where = f" FILTER (WHERE {self._condition(columns, 0)})" if rng.random() < 0.2 else ""
        return call.format(column) + where

    def _compare(self) -> str:
        return self._rng.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))

    def _literal(self, kind: str) -> str:
        return "NULL" if self._rng.random() < _CARELESS else self._rng.choice(_LITERALS[kind])

    def _alias(self) -> str:
        self._aliases += 1
        return f"x{self._aliases}"


def broken(rng: random.Random, text: str, other: str) -> str:
    """A text with some of its words left out, doubled, swapped or replaced, or continued by the end of another."""
    words = _words(text)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        if not words:
            break
        at, to = rng.randrange(len(words)), rng.randrange(len(words))
        match rng.randrange(11):
            case 7 | 8 | 9 | 10:
                # A word of the same sort leaves more sense in the text.
                alike = [each for each in (*words, *_words(other)) if _sort(each) == _sort(words[at])]
                words[at] = rng.choice(alike)
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                words[at], words[to] = words[to], words[at]
            case 3:
                words[at] = rng.choice(_WORDS.split())
            case 4:
                words.insert(at, rng.choice(_WORDS.split()))
            case 5:
                words[at] = words[to]
            case 6:
                tail = _words(other)
                words[at:] = tail[rng.randrange(len(tail) + 1) :]
    if rng.random() < 0.1:
        letters = list(" ".join(words))
        letters[rng.randrange(len(letters) + 1) :] = []
        return "".join(letters)
    return " ".join(words)


def _sort(word: str) -> str:
    return "name" if word.isidentifier() and word.islower() else "word" if word.isidentifier() else "other"


def _words(text: str) -> list[str]:
    try:
        return [text[each.start : each.end + 1] for each in sqlglot.tokenize(text, read="spark")]
    except TokenError:
        return text.split()
