"""Stages of random queries that depend on time: windows, joins by time, patterns, the clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WINDOW = ("window_start", "window_end")
SPANS = ("'10' MINUTE", "'30' MINUTE", "'1' HOUR")

_PANES = (("'10' MINUTE", "'20' MINUTE"), ("'10' MINUTE", "'30' MINUTE"), ("'5' MINUTE", "'10' MINUTE"))
_SPARK = ("window(ts, '10 minutes')", "window(ts, '20 minutes', '10 minutes')", "session_window(ts, '15 minutes')")
_PATTERNS = ("A B", "A B+ C", "A B? C", "A+ B", "(A | B) C", "A B*? C")
_SKIPS = ("", "AFTER MATCH SKIP PAST LAST ROW ", "AFTER MATCH SKIP TO NEXT ROW ", "AFTER MATCH SKIP TO LAST B ")


@dataclass(frozen=True)
class Relation:
    """A table or a query with its columns.

    Each has `k`, and most have `v`; `s` is a text and `ts` a time. If it `grows`, its rows are known to be insert-only.
    A `keyed` table has the key `id`.
    """

    text: str
    columns: tuple[str, ...]
    is_table: bool = False
    grows: bool = False
    keyed: bool = False

    @property
    def from_(self) -> str:
        """Return the relation as FROM has it, without an alias."""
        return self.text if self.is_table else f"({self.text})"

    @property
    def value(self) -> str:
        """Return a column with numbers."""
        return "v" if self.has("v") else "k"

    def has(self, *names: str) -> bool:
        """Return whether it has all these columns."""
        return all(name in self.columns for name in names)


class TimedStages:
    """A generator of relations over relations; if `clocked`, each change has a processing time."""

    def __init__(self, rng: random.Random, tables: Sequence[Relation], *, clocked: bool) -> None:
        self._rng = rng
        self._tables = tables
        self._clocked = clocked
        self._aliases = 0

    def alias(self) -> str:
        """Return a name that no other relation has."""
        self._aliases += 1
        return f"r{self._aliases}"

    def timed_ways(self, below: Relation) -> list[tuple[int, Callable[[Relation], Relation]]]:
        """Return the time-dependent stages that may follow a relation, each with its weight."""
        ways: list[tuple[int, Callable[[Relation], Relation]]] = []
        if below.has("ts") and not below.has("window_start"):
            ways += [(8, self._windowed), (4, self._asof), (2, self._spark_windows)]
            ways += [(5, self._versioned)] if any(each.keyed for each in self._tables) else []
            ways += [(5, self._matched)] if below.grows else []
        if self._clocked:
            ways += [(8, self._recent)] if below.has("ts") else []
            ways += [(6, self._processed)] if below.grows else []
            ways += [(6, self._looked_up)]
        return ways

    def _windowed(self, below: Relation) -> Relation:
        rng = self._rng
        kind = rng.choice(("TUMBLE", "TUMBLE", "HOP", "CUMULATE", "SESSION", "SESSION"))
        lengths = f"INTERVAL {rng.choice(SPANS)}"
        if kind in ("HOP", "CUMULATE"):
            step, size = rng.choice(_PANES)
            lengths = f"INTERVAL {step}, INTERVAL {size}"
        by = rng.choice((" PARTITION BY k", " PARTITION BY k", "")) if kind == "SESSION" else ""
        of = f"TABLE {below.text}" if below.is_table else f"({below.text})"
        text = f"SELECT * FROM TABLE({kind}({of}{by}, DESCRIPTOR(ts), {lengths}))"
        return Relation(text, (*below.columns, *WINDOW, "window_time"), grows=below.grows and kind != "SESSION")

    def _spark_windows(self, below: Relation) -> Relation:
        window = self._rng.choice(_SPARK)
        name = window.partition("(")[0]
        call = self._rng.choice(("COUNT(*)", f"SUM({below.value})", f"FIRST({below.value})", f"LAST({below.value})"))
        listed = f"k, {name}.start AS window_start, {name}.end AS window_end, {call} AS v"
        return Relation(f"SELECT {listed} FROM {below.from_} GROUP BY k, {window}", ("k", *WINDOW, "v"))

    def _met(self, below: Relation, other: Relation, kind: str, on: Sequence[str], of: str = "") -> Relation:
        """Return rows joined with those of another relation: their own columns and a value of the other.

        In `on` the two are called `l` and `r`.
        """
        left, right = self.alias(), self.alias()
        kept = [name for name in below.columns if name != "v"]
        listed = [*(f"{left}.{name}" for name in kept), f"{right}.{other.value} AS v"]
        condition = " AND ".join(on).replace("l.", f"{left}.").replace("r.", f"{right}.")
        joined = f"{below.from_} AS {left} {kind} {other.from_}{of.replace('l.', f'{left}.')} AS {right} ON {condition}"
        return Relation(f"SELECT {', '.join(listed)} FROM {joined}", (*kept, "v"), grows=below.grows and other.grows)

    def _asof(self, below: Relation) -> Relation:
        rng = self._rng
        other = rng.choice([each for each in self._tables if each.has("ts")])
        compared = f"l.ts {rng.choice(('>=', '>=', '>', '<=', '<'))} r.ts"
        return self._met(below, other, rng.choice(("ASOF JOIN", "ASOF LEFT JOIN")), ["l.k = r.k", compared])

    def _versioned(self, below: Relation) -> Relation:
        rng = self._rng
        other = rng.choice([each for each in self._tables if each.keyed])
        on = ["l.k = r.id", *(["r.v > 1"] if rng.random() < 0.2 else [])]
        return self._met(below, other, rng.choice(("JOIN", "LEFT JOIN")), on, " FOR SYSTEM_TIME AS OF l.ts")

    def _looked_up(self, below: Relation) -> Relation:
        rng = self._rng
        other = rng.choice(self._tables)
        on = ["l.k = r.id" if other.keyed and rng.random() < 0.7 else "l.k = r.k"]
        return self._met(below, other, rng.choice(("JOIN", "LEFT JOIN")), on, " FOR SYSTEM_TIME AS OF PROCTIME()")

    def _recent(self, below: Relation) -> Relation:
        rng = self._rng
        clock = f"NOW() {rng.choice('-+')} INTERVAL {rng.choice(SPANS)}"
        condition = f"ts {rng.choice(('>', '>=', '<=', '<'))} {rng.choice((clock, clock, 'NOW()'))}"
        return Relation(f"SELECT {', '.join(below.columns)} FROM {below.from_} WHERE {condition}", below.columns)

    def _processed(self, below: Relation) -> Relation:
        """Return rows with their processing time, in place of their time or in addition to it."""
        name = self._rng.choice(("ts", "p"))
        kept = [each for each in below.columns if each != name]
        text = f"SELECT {', '.join(kept)}, PROCTIME() AS {name} FROM {below.from_}"
        return Relation(text, (*kept, name), grows=True)

    def _matched(self, below: Relation) -> Relation:
        """Return matches of a pattern over rows in order of time."""
        rng = self._rng
        pattern = rng.choice(_PATTERNS)
        skip = rng.choice(_SKIPS) if "B" in pattern and "|" not in pattern and "B?" not in pattern else ""
        value = below.value
        within = rng.choice(("", f" WITHIN INTERVAL {rng.choice(SPANS)}"))
        measures = [f"LAST({value}) AS v", *rng.sample(("MATCH_ROWTIME() AS ts", "COUNT(*) AS n", "FIRST(ts) AS b"), 1)]
        defined = [f"B AS B.{value} > 1", *([f"C AS C.{value} >= A.{value}"] if "C" in pattern else [])]
        order = rng.choice(("ts", "ts", f"ts, {value}"))
        text = (
            f"SELECT * FROM {below.from_} MATCH_RECOGNIZE (PARTITION BY k ORDER BY {order} "
            f"MEASURES {', '.join(measures)} ONE ROW PER MATCH {skip}PATTERN ({pattern}){within} "
            f"DEFINE {', '.join(rng.sample(defined, rng.randint(1, len(defined))))}) AS {self.alias()}"
        )
        return Relation(text, ("k", *(each.rpartition(" AS ")[2] for each in measures)), grows=True)
