"""A case of the batch split law, and the ways in which its changes may be split into batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.fuzz.arrivals import Arrival
from tests.fuzz.case import Case
from tests.fuzz.changelogs import rows_of

BESIDE = "p"

Ends = tuple[int, ...]
"""After how many changes each batch ends."""


@dataclass(frozen=True)
class CutCase(Case):
    """A case of the law; a change may have `at`, the time of its batch in ms.

    `beside` is a second query, with the entry of its sink. `arrival` is the model of the first query, if there is one.
    """

    beside: str | None = None
    beside_sink: Mapping[str, Any] | None = None
    arrival: Arrival | None = None

    @property
    def sinks(self) -> dict[str, Any]:
        """Return the entries of the sinks."""
        found = super().sinks
        if self.beside is not None:
            found[BESIDE] = {**(self.beside_sink or {"mode": "retract"}), "sql": self.beside}
        return found

    @property
    def turned(self) -> CutCase:
        """Return the case with its two queries exchanged."""
        assert self.beside is not None, "there is a second query"
        return replace(
            self, sql=self.beside, sink=self.sinks[BESIDE], beside=self.sql, beside_sink=self.sink, arrival=None
        )

    @property
    def alone(self) -> CutCase:
        """Return the case without its second query."""
        return replace(self, beside=None, beside_sink=None)

    @property
    def times(self) -> list[int]:
        """Return the time of the batch of each change."""
        return [each.get("at", 0) for each in self.changes]

    def document(self, **more: Any) -> dict[str, Any]:
        """Return the contents of the JSON file; some lines of its changes set the clock."""
        lines: list[dict[str, Any]] = []
        before = 0
        for change, at in zip(self.changes, self.times, strict=True):
            if at != before:
                lines.append({"clock": f"{np.datetime64(at, 'ms')}Z"})
            lines.append({name: value for name, value in change.items() if name != "at"})
            before = at
        if self.beside is not None:
            more = {"beside": self.sinks[BESIDE], **more}
        return super().document(**more) | {"changes": lines}

    def cut(self, rows: int) -> Ends:
        """Return batches of so many changes; a change of the clock also ends a batch."""
        ends, begin = [], 0
        for at in range(1, len(self.changes) + 1):
            if at == len(self.changes) or at - begin == rows or self.times[at] != self.times[at - 1]:
                ends.append(at)
                begin = at
        return tuple(ends)

    def random_cut(self, rng: random.Random, chance: float) -> Ends:
        """Return a random split: a batch ends after a change with this chance, and after at least one change."""
        count = len(self.changes)
        ends = {*self.cut(count), *(at for at in range(1, count) if rng.random() < chance)}
        return tuple(sorted(ends | {rng.randint(1, count)}))

    def cuts(self) -> Iterator[Ends]:
        """Yield several different splits of the changes."""
        rng = random.Random(len(self.changes))
        ways = [self.cut(len(self.changes)), self.cut(1), self.cut(2)]
        ways += [self.random_cut(rng, chance) for chance in (0.15, 0.15, 0.3, 0.3, 0.5, 0.7)]
        yield from dict.fromkeys(ways)


def with_unread(case: CutCase) -> CutCase:
    """Return the case with additional columns in its tables, which its queries do not read.

    In a table with a primary key their values change with every write. In a table without one, equal rows stay equal.
    """
    rows = rows_of(case.tables)
    tables = {
        name: {**entry, "columns": {"unread0": "BIGINT", **entry["columns"], "unread1": "STRING"}}
        for name, entry in case.tables.items()
    }
    written: dict[tuple[str, tuple[Any, ...]], int] = {}
    changes = []
    for number, each in enumerate(case.changes):
        table, row = each["table"], each["row"]
        own = rows[table]
        identity = table, own.identity(row)
        if not own.primary_key:
            said = sum(map(ord, repr(identity))) % 7
        elif each["op"] in ("+I", "+U"):
            said = written[identity] = number % 5
        else:
            said = written.get(identity, 0)
        bare = each["op"] == "-D" and len(row) < len(case.tables[table]["columns"])
        added = {} if bare else {"unread0": said, "unread1": f"x{said}"}
        changes.append({**each, "row": {**row, **added}})
    return replace(case, tables=tables, changes=changes)
