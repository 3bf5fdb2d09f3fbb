"""Random queries: SELECT with all its clauses, ranks, set operations, WITH, and nested queries.

Each query has one result for given rows. ROW_NUMBER and LIMIT therefore order by all columns or by arrival, and no sum
depends on the order of addition.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.fuzz.aggregate_calls import SUMMED, aggregate_call
from tests.fuzz.expressions import Expressions, Name
from tests.fuzz.overs import over
from tests.fuzz.relations import From, Output, Query, Relations
from tests.fuzz.schemas import Kind, Table

_UNITED: tuple[Kind, ...] = ("int", "int", "int", "string", "string", "decimal", "double", "date")
_BOUNDS = ("<= 2", "<= 2", "= 1", "= 1", "< 4", "BETWEEN 1 AND 2", "= 2", "BETWEEN 2 AND 3")
_MORE_BOUNDS = (
    "IN (1, 3)", "IN (1, 2, 5)", "NOT IN (2)", "<> 1", "<> 2", "> 1", ">= 2", "NOT BETWEEN 2 AND 3", "<= 1 + 1",
    "< 2.5",
)  # fmt: skip
_KINDS: tuple[Kind, ...] = ("int", "int", "decimal", "double", "ratio", "string", "boolean", "date", "timestamp")


def random_query(rng: random.Random, tables: Sequence[Table]) -> str:
    """Return a random query over the tables."""
    return Queries(rng, tables).top()


class Queries:
    """A generator of queries over some tables."""

    def __init__(self, rng: random.Random, tables: Sequence[Table]) -> None:
        self._rng = rng
        self._tables = tables
        self._relations = Relations(rng, tables, self.query)

    def top(self) -> str:
        """Return a whole query, sometimes with WITH."""
        rng = self._rng
        if rng.random() > 0.1:
            return self.query(rng.choice((0, 1, 1, 2))).text
        name = self._relations.alias("w")
        inner = self.query(1)
        self._relations.with_[name] = inner
        return f"WITH {name} AS ({inner.text}) {self.query(1).text}"

    def query(self, depth: int, kinds: Sequence[Kind] | None = None) -> Query:
        """Return a query, with columns of these kinds if given; less depth makes it smaller."""
        rng = self._rng
        if depth > 0 and self._relations.spent < 2 and rng.random() < 0.12:
            return self._united(depth, kinds)
        form = rng.random()
        if kinds is None and form < 0.17:
            return self._ranked(depth)
        if kinds is None and form < 0.22 and any(each.mode == "append" for each in self._tables):
            return self._by_arrival()
        if kinds is None and form < 0.45:
            return self._grouped(depth)
        return self._plain(depth, kinds)

    def _united(self, depth: int, kinds: Sequence[Kind] | None) -> Query:
        rng = self._rng
        kinds = kinds or [rng.choice(_UNITED) for _ in range(rng.randint(1, 3))]
        word = rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"))
        left, right = self._plain(depth - 1, kinds), self._plain(depth - 1, kinds)
        outputs = tuple(replace(each, type="") for each in left.outputs)
        return Query(f"{left.text} {word} {right.text}", outputs)

    def _plain(self, depth: int, kinds: Sequence[Kind] | None) -> Query:
        """Return a SELECT without groups."""
        rng, from_ = self._rng, self._relations.from_(depth)
        where = self._where(from_, depth)
        if kinds is None and from_.star and rng.random() < 0.2:
            return Query(f"SELECT * FROM {from_.text}{where}", from_.star)
        if kinds is None and (left_out := _said_twice(from_)):
            outputs = tuple(Output(_bare(each), each.kind, each.type) for each in from_.names if each != left_out)
            return Query(f"SELECT * EXCEPT ({left_out.text}) FROM {from_.text}{where}", outputs)
        distinct = "DISTINCT " if rng.random() < 0.1 else ""
        items = self._items(from_, kinds, depth)
        listed = ", ".join(f"{text} AS {output.name}" for text, output in items)
        outputs = tuple(output for _, output in items)
        query = f"SELECT {distinct}{listed} FROM {from_.text}{where}"
        if kinds is None and rng.random() < 0.08:
            order = ", ".join(f"{each.name}{self._direction()}" for each in rng.sample(outputs, len(outputs)))
            offset = f" OFFSET {rng.randint(1, 2)}" if rng.random() < 0.3 else ""
            query = f"{query} ORDER BY {order} LIMIT {rng.randint(1, 3)}{offset}"
        return Query(query, outputs)

    def _items(self, from_: From, kinds: Sequence[Kind] | None, depth: int) -> list[tuple[str, Output]]:
        """Return the items of the SELECT list."""
        rng, expressions = self._rng, self._expressions(from_)
        items: list[tuple[str, Output]] = []
        if kinds is not None:
            return [(expressions.value(each), Output(self._relations.alias("c"), each)) for each in kinds]
        for _ in range(rng.randint(1, 4)):
            name = self._relations.alias("c")
            if rng.random() < 0.65:
                read = rng.choice(from_.names)
                items.append((read.text, Output(name, read.kind, read.type)))
            elif rng.random() < 0.12:
                items.append(self._over_partition(from_, name))
            elif depth > 0 and self._relations.spent < 3 and rng.random() < 0.15:
                is_test = rng.random() < 0.3
                items.append((self._tested(from_), Output(name, "boolean")) if is_test else self._scalar(from_, name))
            else:
                kind = rng.choice((rng.choice(_KINDS), *(each.kind for each in from_.names)))
                items.append((expressions.value(kind, 2), Output(name, kind)))
        return items

    def _over_partition(self, from_: From, name: str) -> tuple[str, Output]:
        """Return a function over the row's partition."""
        rng = self._rng
        call, kind = aggregate_call(rng, from_.names)
        while call.startswith("CAST") or "DISTINCT" in call:
            call, kind = aggregate_call(rng, from_.names)
        text, kind = over(rng, from_.names, call, kind)
        return text, Output(name, kind)

    def _where(self, from_: From, depth: int) -> str:
        rng = self._rng
        parts = []
        if rng.random() < 0.3:
            parts.append(self._expressions(from_).condition())
        while depth > 0 and self._relations.spent < 4 and rng.random() < 0.2:
            parts.append(self._anywhere(from_))
        rng.shuffle(parts)
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _anywhere(self, from_: From) -> str:
        """Return a test of a subquery, alone or within a condition."""
        rng, tested = self._rng, self._tested(from_)
        other = self._expressions(from_).condition
        form = rng.random()
        if form < 0.2:
            return f"({other()} OR {tested})"
        if form < 0.3:
            return f"NOT ({other()} AND {tested})"
        return f"CASE WHEN {tested} THEN {other()} ELSE {other()} END" if form < 0.4 else tested

    def _tested(self, from_: From) -> str:
        """Return EXISTS, IN, or a comparison with a subquery's one value or with ANY or ALL of its values."""
        rng = self._rng
        outer = [each for each in from_.names if not each.local]
        text, inner, where = self._inner(outer, linked=rng.random() < 0.85)
        no = rng.choice(("", "NOT "))
        if rng.random() < 0.45 or not outer:
            return f"{no}EXISTS (SELECT 1 FROM {text}{where})"
        pairs = [(one, own) for one in outer for own in inner if _alike(one, own)]
        if not pairs:
            return f"{no}EXISTS (SELECT 1 FROM {text}{where})"
        own, column = rng.choice(pairs)
        if rng.random() < 0.15:
            second, other = rng.choice(pairs)
            return f"({own.text}, {second.text}) {no}IN (SELECT {column.text}, {other.text} FROM {text}{where})"
        if rng.random() < 0.6:
            return f"{own.text} {no}IN (SELECT {column.text} FROM {text}{where})"
        if rng.random() < 0.3:
            word = rng.choice(("< ANY", ">= ALL", "<> ANY", "= ALL", "> ANY", "<= ALL"))
            return f"{no}{own.text} {word} (SELECT {column.text} FROM {text}{where})"
        call = f"{rng.choice(('MAX', 'MIN'))}({column.text})"
        return f"{own.text} {rng.choice(('<', '>=', '='))} (SELECT {call} FROM {text}{where})"

    def _scalar(self, from_: From, name: str) -> tuple[str, Output]:
        """Return a scalar subquery."""
        rng = self._rng
        outer = [each for each in from_.names if not each.local]
        text, inner, where = self._inner(outer, linked=rng.random() < 0.8, equal=rng.random() < 0.6)
        call, kind = aggregate_call(rng, inner)
        return f"(SELECT {call} FROM {text}{where})", Output(name, kind)

    def _inner(self, outer: Sequence[Name], *, linked: bool, equal: bool = False) -> tuple[str, tuple[Name, ...], str]:
        """Return FROM, names and WHERE of a subquery; with `equal` it is correlated by equalities only."""
        rng = self._rng
        if rng.random() < 0.2:
            query, alias = self._ranked(0), self._relations.alias("r")
            text, outputs = f"({query.text}) AS {alias}", query.outputs
        else:
            text, alias, outputs = self._relations.relation(1 if rng.random() < 0.3 else 0)
        names = tuple(Name(f"{alias}.{each.name}", each.kind, each.type) for each in outputs)
        parts = []
        pairs = [(one, own) for one in outer for own in names if _alike(one, own)]
        if linked and pairs:
            one, own = rng.choice(pairs)
            parts.append(f"{own.text} = {one.text}")
            others = [pair for pair in pairs if one not in pair and own not in pair]
            if others and rng.random() < 0.4 and not equal:
                one, own = rng.choice(others)
                parts.append(f"{own.text} {rng.choice(('<', '<>', '>='))} {one.text}")
        if rng.random() < 0.3:
            parts.append(Expressions(rng, names).condition())
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        return self._derived(text, names, where) if parts and rng.random() < 0.2 else (text, names, where)

    def _derived(self, text: str, names: Sequence[Name], where: str) -> tuple[str, tuple[Name, ...], str]:
        """Return FROM and WHERE of a subquery whose rows come from a derived table."""
        rng, alias = self._rng, self._relations.alias("d")
        columns = [self._relations.alias("c") for _ in names]
        listed = ", ".join(f"{each.text} AS {column}" for each, column in zip(names, columns, strict=True))
        distinct, top = rng.choice((("", ""), ("DISTINCT ", ""), ("", f" ORDER BY {', '.join(columns)} LIMIT 2")))
        outputs = tuple(Name(f"{alias}.{name}", old.kind, old.type) for name, old in zip(columns, names, strict=True))
        return f"(SELECT {distinct}{listed} FROM {text}{where}{top}) AS {alias}", outputs, ""

    def _grouped(self, depth: int) -> Query:
        """Return a SELECT with aggregates, with or without GROUP BY."""
        rng, from_ = self._rng, self._relations.from_(depth)
        where = self._where(from_, depth)
        expressions = self._expressions(from_)
        groups: list[Name] = []
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            read = rng.choice(from_.names)
            if rng.random() < 0.25:
                read = Name(expressions.value(read.kind, 2), read.kind)
            if read.text not in [each.text for each in groups] and not _constant(read.text):
                groups.append(read)
        calls = [Name(*aggregate_call(rng, from_.names)) for _ in range(rng.randint(0 if groups else 1, 3))]
        hint = ""
        if groups and rng.random() < 0.06:
            read = rng.choice(from_.names)
            hint, calls = "/*+ SPLIT_DISTINCT */ ", [Name(f"COUNT(DISTINCT {read.text})", "int")]
            calls += [Name(f"SUM(DISTINCT {read.text})", read.kind)] * (read.kind in SUMMED)
            others = [aggregate_call(rng, from_.names) for _ in range(rng.randint(0, 2))]
            calls += [Name(*each) for each in others if "DISTINCT" not in each[0]]
        known = Expressions(rng, (*groups, *calls))
        listed_names = [each for each in (*groups, *calls) if each in calls or rng.random() < 0.85]
        items = [(each.text, Output(self._relations.alias("c"), each.kind, each.type)) for each in listed_names]
        if not items or rng.random() < 0.2:
            kind = rng.choice(_KINDS)
            items.append((known.value(kind, 2), Output(self._relations.alias("c"), kind)))
        listed = ", ".join(f"{text} AS {output.name}" for text, output in items)
        by = self._group_by(groups, items)
        having = f" HAVING {known.condition()}" if rng.random() < 0.25 else ""
        distinct = "DISTINCT " if rng.random() < 0.05 else ""
        text = f"SELECT {hint}{distinct}{listed} FROM {from_.text}{where}{by}{having}"
        return Query(text, tuple(output for _, output in items))

    def _grouping_sets(self, groups: Sequence[str]) -> str:
        """Return grouping sets without the empty set, for which Spark, unlike DuckDB, has no row over no rows."""
        rng = self._rng
        first, *others = rng.sample(groups, len(groups))
        if others and rng.random() < 0.6:
            word = rng.choice(("ROLLUP", "CUBE"))
            return f"{first}, {word} ({', '.join(others)})"
        sets = [rng.sample(groups, rng.randint(1, len(groups))) for _ in range(rng.randint(1, 3))]
        return f"GROUPING SETS ({', '.join('(' + ', '.join(each) + ')' for each in sets)})"

    def _group_by(self, groups: Sequence[Name], items: Sequence[tuple[str, Output]]) -> str:
        if not groups:
            return ""
        if self._rng.random() < 0.1 and all(each.text.replace(".", "").replace("_", "").isalnum() for each in groups):
            return f" GROUP BY {self._grouping_sets([each.text for each in groups])}"
        form = self._rng.random()
        texts = [text for text, _ in items]
        if form < 0.15 and all(each.text in texts for each in groups):
            return f" GROUP BY {', '.join(str(texts.index(each.text) + 1) for each in groups)}"
        if form < 0.3 and all(each.text in texts for each in groups):
            return f" GROUP BY {', '.join(items[texts.index(each.text)][1].name for each in groups)}"
        return f" GROUP BY {', '.join(each.text for each in groups)}"

    def _ranked(self, depth: int) -> Query:
        """Return rows with numbers within a range, with or without the number."""
        rng, from_ = self._rng, self._relations.from_(depth)
        where = self._where(from_, depth)
        items = self._items(from_, None, 0)
        outputs = tuple(output for _, output in items)
        listed = ", ".join(f"{text} AS {output.name}" for text, output in items)
        window, number = self._window(from_), self._relations.alias("n")
        if rng.random() < 0.2:
            bound = f"{window} {rng.choice(_BOUNDS)}"
            return Query(f"SELECT {listed} FROM {from_.text}{where} QUALIFY {bound}", outputs)
        if rng.random() < 0.05:
            text = f"CASE WHEN {window} {rng.choice(_MORE_BOUNDS)} THEN 1 ELSE 0 END AS {number}"
            return Query(f"SELECT {listed}, {text} FROM {from_.text}{where}", (*outputs, Output(number, "int")))
        numbers = [(window, number), *self._another_number(from_, window)]
        hint = "/*+ UNBOUNDED_RANK */ " if rng.random() < 0.3 else ""
        listed = ", ".join([listed, *(f"{text} AS {name}" for text, name in numbers)])
        inner = f"SELECT {hint}{listed} FROM {from_.text}{where}"
        alias = self._relations.alias("r")
        names = tuple(Name(f"{alias}.{each.name}", each.kind, each.type) for each in outputs)
        bounds = [self._bound(f"{alias}.{name}", names) for _, name in numbers]
        if rng.random() < 0.15:
            bounds.append(Expressions(rng, names).condition())
        shown = [*outputs, *(Output(name, "int") for _, name in numbers if rng.random() < 0.5)]
        columns = ", ".join(f"{alias}.{each.name}" for each in shown)
        return Query(f"SELECT {columns} FROM ({inner}) AS {alias} WHERE {' AND '.join(bounds)}", tuple(shown))

    def _another_number(self, from_: From, window: str) -> list[tuple[str, str]]:
        """Return, sometimes, a second number with another order or function."""
        rng = self._rng
        if rng.random() >= 0.3:
            return []
        others = (self._window(from_), f"{rng.choice(('RANK', 'DENSE_RANK'))}{window[window.index('(') :]}")
        return [(rng.choice(others), self._relations.alias("n"))]

    def _bound(self, number: str, names: Sequence[Name]) -> str:
        """Return a condition on the number of a row, mostly a range."""
        rng = self._rng
        whole = [each.text for each in names if each.kind == "int"]
        match rng.choice(("range", "range", "range", "more", "either", "row")):
            case "more":
                return f"{number} {rng.choice(_MORE_BOUNDS)}"
            case "either":
                return f"({number} {rng.choice(_BOUNDS)} OR {number} {rng.choice(_MORE_BOUNDS)})"
            case "row" if whole:
                return f"{number} {rng.choice(('<=', '<=', '=', '<>'))} {rng.choice(whole)}"
        return f"{number} {rng.choice(_BOUNDS)}"

    def _window(self, from_: From) -> str:
        rng = self._rng
        function = rng.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        partition = [each.text for each in rng.sample(from_.names, min(len(from_.names), rng.choice((0, 1, 1, 2))))]
        order = rng.sample(from_.names, len(from_.names))
        if function != "ROW_NUMBER":
            order = order[: rng.choice((1, 1, 2))]
        by = f"PARTITION BY {', '.join(partition)} " if partition else ""
        return f"{function}() OVER ({by}ORDER BY {', '.join(f'{each.text}{self._direction()}' for each in order)})"

    def _by_arrival(self) -> Query:
        """Return the first or last rows of an append table, by arrival or by a column and arrival."""
        rng = self._rng
        table = rng.choice([each for each in self._tables if each.mode == "append"])
        self._relations.spent += 1
        inner, alias, number = (self._relations.alias(each) for each in "rrn")
        outputs = [Output(each.name, each.kind, each.type) for each in table.columns]
        columns = [f"{inner}.{each.name}" for each in outputs]
        by = f"PARTITION BY {rng.choice(columns)} " if rng.random() < 0.8 else ""
        first = f"{rng.choice(columns)}{self._direction()}, " if rng.random() < 0.4 else ""
        order = f"{first}PROCTIME(){rng.choice(('', ' DESC'))}"
        numbered = f"SELECT {', '.join(columns)}, ROW_NUMBER() OVER ({by}ORDER BY {order}) AS {number} "
        bound = rng.choice(("= 1", "= 1", "<= 2"))
        listed = ", ".join(f"{alias}.{each.name}" for each in outputs)
        text = (
            f"SELECT {listed} FROM ({numbered}FROM {table.name} AS {inner}) AS {alias} WHERE {alias}.{number} {bound}"
        )
        return Query(text, tuple(outputs))

    def _direction(self) -> str:
        return self._rng.choice(("", "", " DESC", " DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST"))

    def _expressions(self, from_: From) -> Expressions:
        return Expressions(self._rng, from_.names)


def _said_twice(from_: From) -> Name | None:
    """Return the one column without which all names are distinct, or None."""
    names = [_bare(each) for each in from_.names]
    again = [each for at, each in enumerate(from_.names) if _bare(each) in names[:at]]
    return again[0] if len(again) == 1 and not any(each.local for each in from_.names) else None


def _bare(name: Name) -> str:
    """Return a name without its relation."""
    return name.text.rpartition(".")[2]


def _alike(one: Name, other: Name) -> bool:
    """Return whether two names have the same kind and, for decimals, the same type."""
    return one.kind == other.kind and (one.kind != "decimal" or one.type == other.type != "")


def _constant(text: str) -> bool:
    """Return whether an expression reads no column, so that GROUP BY would take it as a position or refuse it."""
    return "." not in text and not any(letter.islower() for letter in text)
