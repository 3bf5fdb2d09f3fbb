"""How many of the records that a job reads become dead letters: a few are to be expected, many are a mistake.

A producer that forgets the row kind, or a table that is declared otherwise than its topic is written, fills the dead
letter topic while everything seems to run.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rowkind.service.metrics import parse

_MANY = 0.1
"""More of a table's records are told."""

_SECONDS = 60.0
_FIRST = 100
"""If so many have come, and none was a row, that is told at once."""


@dataclass(frozen=True)
class Share:
    """The dead letters among a table's records of the last minute, by why they are none."""

    table: str
    records: int
    letters: Mapping[str, int]

    @property
    def ratio(self) -> float:
        """How many of the records they are."""
        return sum(self.letters.values()) / self.records

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.letters.items()))
        return (
            f"table {self.table}: {self.ratio:.0%} of its last {self.records:,} records are dead letters ({reasons}). "
            "Are its mode, columns and row kind what the job says? The dead letter topic has each with its reason."
        )


@dataclass
class Shares:
    """The shares of all tables, as tasks report what they have read."""

    _seen: deque[tuple[float, str, str, int]] = field(default_factory=deque)
    _since: dict[str, float] = field(default_factory=dict)
    _rows: Counter[str] = field(default_factory=Counter)

    def add(self, counters: Mapping[str, float], now: float) -> None:
        """Take in what a task has counted, at this time in seconds."""
        for sample, value in counters.items():
            name, labels = parse(sample)
            if name in {"rowkind_rows_in_total", "rowkind_dead_letters_total"} and value:
                table = labels["table"]
                self._seen.append((now, table, labels.get("reason", ""), int(value)))
                self._since.setdefault(table, now)
                self._rows[table] += int(value) if name == "rowkind_rows_in_total" else 0

    def many(self, now: float) -> list[Share]:
        """Of each table that has too many, its share."""
        while self._seen and self._seen[0][0] < now - _SECONDS:
            self._seen.popleft()
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for _, table, reason, count in self._seen:
            found[table][reason] += count
        shares = []
        for table, counts in sorted(found.items()):
            records = counts.total()
            letters = {reason: count for reason, count in counts.items() if reason}
            told = now - self._since[table] >= _SECONDS or (records >= _FIRST and not self._rows[table])
            if told and sum(letters.values()) > _MANY * records:
                shares.append(Share(table, records, letters))
        return shares
