"""How many of the records that a job reads become dead letters: a few are to be expected, many are a mistake.

A producer that forgets the row kind, or a table that is declared otherwise than its topic is written, fills the dead
letter topic while everything seems to run.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.dead_letter import EXPRESSION

_MANY = 0.1
"""More of a table's records are told."""

_SECONDS = 60.0
_RECORDS, _FEW = 100, 10
"""What is judged are the records of the last minute, or if those are fewer, a hundred: at once if there are so many,
and after a minute if there are ten."""


@dataclass(frozen=True)
class Share:
    """The dead letters among a table's last records, by why they are none."""

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

    _since: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, deque[tuple[float, str, int]]] = field(default_factory=lambda: defaultdict(deque))
    """By table: when so many records came, and why they were no rows; nothing for rows."""

    def add(self, counters: Mapping[str, float], now: float) -> None:
        """Take in what a task has counted, at this time in seconds."""
        for sample, value in counters.items():
            name, labels = parse(sample)
            # What an expression failed on is a row, and has been counted as one.
            of_table = name in {"rowkind_rows_in_total", "rowkind_dead_letters_total"}
            if of_table and labels.get("reason") != EXPRESSION and value:
                self._since.setdefault(labels["table"], now)
                self._seen[labels["table"]].append((now, labels.get("reason", ""), int(value)))

    def many(self, now: float) -> list[Share]:
        """Of each table that has too many, its share."""
        shares = []
        for table, seen in sorted(self._seen.items()):
            records = sum(count for *_, count in seen)
            while seen[0][0] < now - _SECONDS and records - seen[0][2] >= _RECORDS:
                records -= seen.popleft()[2]
            letters = Counter[str]()
            for _, reason, count in seen:
                letters[reason] += count
            del letters[""]
            told = records >= (_FEW if now - self._since[table] >= _SECONDS else _RECORDS)
            if told and letters.total() > _MANY * records:
                shares.append(Share(table, records, dict(letters)))
        return shares
