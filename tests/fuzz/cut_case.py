"""A case of the cut law, and the ways in which its changes may be cut into batches."""

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
    """A case of the law. A change may say, as `at`, what time its batch has, in ms.

    `beside` is a second query, with the entry of its sink. `arrival` says what the first one is if its result is known.
    """

    beside: str | None = None
    beside_sink: Mapping[str, Any] | None = None
    arrival: Arrival | None = None

    @property
    def sinks(self) -> dict[str, Any]:
        """The entries of the sinks."""
        found = super().sinks
        if self.beside is not None:
            found[BESIDE] = {**(self.beside_sink or {"mode": "retract"}), "sql": self.beside}
        return found

    @property
    def turned(self) -> CutCase:
        """The second query first."""
        assert self.beside is not None, "there is a second query"
        return replace(
            self, sql=self.beside, sink=self.sinks[BESIDE], beside=self.sql, beside_sink=self.sink, arrival=None
        )

    @property
    def alone(self) -> CutCase:
        """The first query without the second."""
        return replace(self, beside=None, beside_sink=None)

    @property
    def times(self) -> list[int]:
        """The time of the batch of each change."""
        return [each.get("at", 0) for each in self.changes]

    def document(self, **more: Any) -> dict[str, Any]:
        """What the JSON file holds; a line of its changes sets the clock."""
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
        """Batches of so many changes; a change of the clock ends a batch, too."""
        ends, begin = [], 0
        for at in range(1, len(self.changes) + 1):
            if at == len(self.changes) or at - begin == rows or self.times[at] != self.times[at - 1]:
                ends.append(at)
                begin = at
        return tuple(ends)

    def random_cut(self, rng: random.Random, chance: float) -> Ends:
        """A cut in which a batch ends after any change with this chance, and after one change at least."""
        count = len(self.changes)
        ends = {*self.cut(count), *(at for at in range(1, count) if rng.random() < chance)}
        return tuple(sorted(ends | {rng.randint(1, count)}))

    def cuts(self) -> Iterator[Ends]:
        """Several ways to cut the changes, all different."""
        rng = random.Random(len(self.changes))
        ways = [self.cut(len(self.changes)), self.cut(1), self.cut(2)]
        ways += [self.random_cut(rng, chance) for chance in (0.15, 0.15, 0.3, 0.3, 0.5, 0.7)]
        yield from dict.fromkeys(ways)


def with_unread(case: CutCase) -> CutCase:
    """The case with columns more in its tables, which its queries do not read.

    A table with a primary key has other values in them with every write; of one without, rows that are equal remain so.
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
