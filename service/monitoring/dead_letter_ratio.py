"""Measure the ratio of dead letters to records. A few dead letters are normal; many indicate a mistake.

If a producer omits the row kind, or if a table's declaration does not match its topic, the dead letter topic fills up
while everything seems to work.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.dead_letter import EXPRESSION

_MANY = 0.1
"""The ratio of dead letters above which a table is reported."""

_LEAST = 3
"""The minimum number of dead letters for a ratio to be reported, however few records there are."""

_SECONDS = 60.0
_RECORDS = 100
"""The ratio covers the records of the last minute, or the last 100 if the minute has fewer."""


@dataclass(frozen=True)
class Share:
    """The dead letters among a table's last records, counted by reason."""

    table: str
    records: int
    letters: Mapping[str, int]

    @property
    def ratio(self) -> float:
        """The share of dead letters among the records."""
        return sum(self.letters.values()) / self.records

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.letters.items()))
        return (
            f"table {self.table}: {self.ratio:.0%} of its last {self.records:,} records are dead letters ({reasons}). "
            "Check its mode, columns and row kind in the job. The dead letter topic has each record with its reason."
        )


@dataclass
class Shares:
    """The ratios of all tables, computed from the tasks' counters."""

    _seen: dict[str, deque[tuple[float, str, int]]] = field(default_factory=lambda: defaultdict(deque))
    """By table: when records were read, the reason if they became dead letters (empty for rows), and their number."""

    def add(self, counters: Mapping[str, float], now: float) -> None:
        """Add the counters of a task; `now` is in seconds."""
        for sample, value in counters.items():
            name, labels = parse(sample)
            # A record on which an expression failed was decoded to a row, and has already been counted as a row.
            of_table = name in {"rowkind_rows_in_total", "rowkind_dead_letters_total"}
            if of_table and labels.get("reason") != EXPRESSION and value:
                self._seen[labels["table"]].append((now, labels.get("reason", ""), int(value)))

    def many(self, now: float) -> list[Share]:
        """Return the shares of those tables that have too many dead letters."""
        shares = []
        for table, seen in sorted(self._seen.items()):
            records = sum(count for *_, count in seen)
            while seen[0][0] < now - _SECONDS and records - seen[0][2] >= _RECORDS:
                records -= seen.popleft()[2]
            letters = Counter[str]()
            for _, reason, count in seen:
                letters[reason] += count
            del letters[""]
            if letters.total() >= _LEAST and letters.total() > _MANY * records:
                shares.append(Share(table, records, dict(letters)))
        return shares
