"""Random queries over all operators in nested stages: each stage is a relation that the next one may read.

Every stage can be combined with every other one; the planner refuses unsupported combinations. A result may depend on
the order of arrival, but on nothing else. This module has no model of the results.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.timed_stages import SPANS, WINDOW, Relation, TimedStages

_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_FRAMES = (" ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "", "")


class Stages(TimedStages):
    """A generator of queries over some tables."""

    def chain(self, stages: int) -> list[Relation]:
        """Return a table and so many stages, each on the one before."""
        found = [self._rng.choice(self._tables)]
        for _ in range(stages):
            found.append(self.stage(found[-1]))
        return found

    def stage(self, below: Relation) -> Relation:
        """Return one more stage on a relation."""
        ways: list[tuple[int, Callable[[Relation], Relation]]] = [
            (5, self._grouped), (4, self._ranked), (4, self._over), (5, self._joined), (2, self._limited),
            (2, self._united), (2, self._filtered), (1, self._expanded), (1, self._distinct), (1, self._with_value),
        ]  # fmt: skip
        if below.has("window_start"):
            ways += [(10, self._grouped), (4, self._ranked), (2, self._joined)]
        weights, makers = zip(*ways, *self.timed_ways(below), strict=True)
        return self._rng.choices(makers, weights)[0](below)

    def _partition(self, below: Relation) -> list[str]:
        """Return the columns by which rows are grouped: mostly windows, and others."""
        rng = self._rng
        windows = [name for name in WINDOW if below.has(name)] if rng.random() < 0.85 else []
        return windows + rng.choice((["k"], ["k"], ["k", "s"] if below.has("s") else ["k"], []))

    def _grouped(self, below: Relation) -> Relation:
        rng = self._rng
        keys = self._partition(below)
        if below.has("window_time") and "window_end" in keys and rng.random() < 0.3:
            keys.insert(rng.randint(0, len(keys)), "window_time")
        calls = {name: call for name, call in self._calls(below).items() if name not in keys}
        by = ", ".join(keys)
        if rng.random() < 0.08 and len(keys) > 1:
            by = f"{keys[0]}, ROLLUP ({', '.join(keys[1:])})"
        having = " HAVING COUNT(*) > 1" if rng.random() < 0.15 else ""
        items = {name: name for name in keys} | {"k": "k" if "k" in keys else "MAX(k)"} | calls
        if "window_time" in items:
            del items["window_time"]
            items["ts"] = "window_time"
        listed = ", ".join(call if call == name else f"{call} AS {name}" for name, call in items.items())
        groups = f" GROUP BY {by}" if keys else ""
        return Relation(f"SELECT {listed} FROM {below.from_}{groups}{having}", tuple(items))

    def _calls(self, below: Relation) -> dict[str, str]:
        """Return aggregates by their names."""
        rng, value = self._rng, below.value
        whole = (
            "COUNT(*)", f"COUNT({value})", f"SUM({value})", f"MIN({value})", f"MAX({value})", f"BIT_XOR({value})",
            f"COUNT(DISTINCT {value})", f"FIRST({value})", f"LAST({value})", f"LAST({value}, true)",
            f"SUM({value}) FILTER (WHERE {value} > 1)",
        )  # fmt: skip
        calls = {"v": rng.choice(whole)}
        others = {"w": f"{rng.choice(('FIRST', 'LAST'))}({value})", "a": f"AVG({value})"}
        if below.has("s"):
            texts = (f"{rng.choice(('FIRST', 'LAST', 'MIN', 'MAX'))}(s)", f"MAX_BY(s, {value})", "LISTAGG(s, ',')")
            others |= {"s": rng.choice(texts), "l": f"COLLECT_LIST({value})"}
        if below.has("ts"):
            others["ts"] = f"{rng.choice(('MIN', 'MAX', 'MAX', 'FIRST', 'LAST'))}(ts)"
        return calls | {name: others[name] for name in rng.sample(list(others), rng.choice((0, 0, 1, 2)))}

    def _order(self, below: Relation) -> str:
        rng = self._rng
        options = ["k", "PROCTIME()", *(["v"] * 2 if below.has("v") else []), *(["ts"] * 3 if below.has("ts") else [])]
        order = rng.choice(options)
        more = rng.choice(options)
        if "PROCTIME()" not in (order, more) and more != order and rng.random() < 0.15:
            order = f"{order}, {more}"
        return f"{order}{rng.choice(('', '', ' DESC'))}"

    def _ranked(self, below: Relation) -> Relation:
        """Return the first rows of each partition."""
        rng = self._rng
        by, order = ", ".join(self._partition(below)), self._order(below)
        function = (
            "ROW_NUMBER" if "PROCTIME" in order else rng.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        )
        window = f"{function}() OVER ({f'PARTITION BY {by} ' if by else ''}ORDER BY {order})"
        columns = tuple(name for name in below.columns if name != "n")
        number = ("n",) if rng.random() < 0.3 else ()
        bound = rng.choice(("= 1", "= 1", "<= 2", "<= 2", "= 2"))
        inner = f"SELECT {', '.join(columns)}, {window} AS n FROM {below.from_}"
        return Relation(f"SELECT {', '.join((*columns, *number))} FROM ({inner}) WHERE n {bound}", (*columns, *number))

    def _over(self, below: Relation) -> Relation:
        """Return rows with functions over their partitions."""
        rng, value = self._rng, below.value
        by, order = ", ".join(self._partition(below)), self._order(below)
        by = f"PARTITION BY {by} " if by else ""
        frame = rng.choice(_FRAMES)
        if order == "ts" and rng.random() < 0.5:
            frame = f" RANGE BETWEEN INTERVAL {rng.choice(SPANS)} PRECEDING AND CURRENT ROW"
        calls = [f"{call} OVER ({by}ORDER BY {order}{frame})" for call in (
            f"SUM({value})", "COUNT(*)", f"MAX({value})", f"FIRST_VALUE({value})", f"LAST_VALUE({value})",
        )]  # fmt: skip
        calls += [f"{call} OVER ({by}ORDER BY {order})" for call in (
            f"LAG({value})", f"LEAD({value})", "ROW_NUMBER()", "ROW_NUMBER()", f"LAG({value}) IGNORE NULLS", "NTILE(2)",
        )]  # fmt: skip
        calls.append(f"SUM({value}) OVER ({by}ORDER BY {order} ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)")
        calls.append(f"SUM({value}) OVER ({by.strip()})")
        names = ("v", "w")[: rng.choice((1, 1, 2))]
        kept = [name for name in below.columns if name not in names]
        listed = [*kept, *(f"{call} AS {name}" for call, name in zip(rng.sample(calls, 2), names, strict=False))]
        return Relation(f"SELECT {', '.join(listed)} FROM {below.from_}", (*kept, *names))

    def _joined(self, below: Relation) -> Relation:
        """Return a join, semi join or anti join with another relation, within an interval if both have times."""
        rng, left, right = self._rng, self.alias(), self.alias()
        other = rng.choice(self._tables)
        if rng.random() < 0.4:
            other = self.stage(other)
        on = [f"{left}.k = {right}.k"]
        if below.has("ts") and other.has("ts") and rng.random() < 0.6:
            before, after = (f"INTERVAL {rng.choice(SPANS)}" for _ in range(2))
            on.append(rng.choice((
                f"{right}.ts BETWEEN {left}.ts AND {left}.ts + {after}",
                f"{right}.ts BETWEEN {left}.ts - {before} AND {left}.ts + {after}",
                f"{right}.ts > {left}.ts - {before}",
            )))  # fmt: skip
        if below.has(*WINDOW) and other.has(*WINDOW):
            on += [f"{left}.{name} = {right}.{name}" for name in WINDOW]
        if below.has("v") and other.has("v") and rng.random() < 0.2:
            on.append(f"{left}.v < {right}.v")
        kind = rng.choice(_JOINS)
        joined = f"{below.from_} AS {left} {kind} {other.from_} AS {right} ON {' AND '.join(on)}"
        if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            listed = ", ".join(f"{left}.{name}" for name in below.columns)
            return Relation(f"SELECT {listed} FROM {joined}", below.columns)
        taken = {name: f"{left}.{name}" for name in below.columns if name == "k" or rng.random() < 0.8}
        taken |= {name: f"{right}.{name}" for name in other.columns if name not in taken}
        grows = kind == "JOIN" and below.grows and other.grows
        return Relation(f"SELECT {', '.join(taken.values())} FROM {joined}", tuple(taken), grows=grows)

    def _limited(self, below: Relation) -> Relation:
        """Return the rows that arrived first, or the first rows by a column."""
        rng = self._rng
        order = f" ORDER BY {self._order(below)}" if rng.random() < 0.4 else ""
        order = "" if "PROCTIME" in order else order
        offset = f" OFFSET {rng.randint(1, 2)}" if rng.random() < 0.3 else ""
        text = f"SELECT {', '.join(below.columns)} FROM {below.from_}{order} LIMIT {rng.randint(1, 3)}{offset}"
        return Relation(text, below.columns)

    def _united(self, below: Relation) -> Relation:
        rng = self._rng
        other = rng.choice(self._tables)
        if rng.random() < 0.3:
            other = self.stage(other)
        alike = ("k", "ts", "s", "v") if rng.random() < 0.3 else ("k", "ts", "s")
        columns = [name for name in below.columns if other.has(name) and (name in alike or below.is_table)]
        word = rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"))
        listed = ", ".join(columns)
        text = f"SELECT {listed} FROM {below.from_} {word} SELECT {listed} FROM {other.from_}"
        return Relation(text, tuple(columns), grows=word == "UNION ALL" and below.grows and other.grows)

    def _filtered(self, below: Relation) -> Relation:
        rng, alias = self._rng, self.alias()
        other, inner = rng.choice(self._tables), self.alias()
        condition = rng.choice((
            f"{alias}.{below.value} > 1", f"{alias}.{below.value} IS NOT NULL", f"{alias}.k <> 2",
            f"EXISTS (SELECT 1 FROM {other.text} AS {inner} WHERE {inner}.k = {alias}.k)",
            f"{alias}.k NOT IN (SELECT v FROM {other.text} WHERE v IS NOT NULL)",
        ))  # fmt: skip
        listed = ", ".join(f"{alias}.{name}" for name in below.columns)
        grows = below.grows and "SELECT" not in condition
        return Relation(f"SELECT {listed} FROM {below.from_} AS {alias} WHERE {condition}", below.columns, grows=grows)

    def _expanded(self, below: Relation) -> Relation:
        """Return several rows per row."""
        kept = [name for name in below.columns if name != "v"]
        text = f"SELECT {', '.join(kept)}, e.v FROM {below.from_} CROSS JOIN UNNEST(ARRAY({below.value}, 1, k)) AS e(v)"
        return Relation(text, (*kept, "v"), grows=below.grows)

    def _distinct(self, below: Relation) -> Relation:
        columns = [name for name in below.columns if name in ("k", "ts", "s", *WINDOW) or self._rng.random() < 0.3]
        return Relation(f"SELECT DISTINCT {', '.join(columns)} FROM {below.from_}", tuple(columns))

    def _with_value(self, below: Relation) -> Relation:
        """Return rows with a scalar subquery's value."""
        rng, alias, inner = self._rng, self.alias(), self.alias()
        other = rng.choice(self._tables)
        kept = [name for name in below.columns if name != "v"]
        call = rng.choice(("COUNT(*)", f"MAX({inner}.v)", f"SUM({inner}.v)"))
        value = f"(SELECT {call} FROM {other.text} AS {inner} WHERE {inner}.k = {alias}.k) AS v"
        listed = ", ".join(f"{alias}.{name}" for name in kept)
        return Relation(f"SELECT {listed}, {value} FROM {below.from_} AS {alias}", (*kept, "v"))
