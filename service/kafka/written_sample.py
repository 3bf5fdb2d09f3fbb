"""A sample of what a write task has written: the last changes of each sink, and the last dead letters.

The sample is reported to the driver with the task's counters. It has at most 20 rows per sink, so its cost does not
depend on the number of rows that the task writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rowkind.operators.columns.changes import Changes
from rowkind.service.kafka.dead_letter import DeadLetter

MOST_ROWS = 20
"""The number of changes per sink, and of dead letters per query, that are kept for the status page."""

_MOST_BYTES = 4_096
"""A longer row is reported without its content."""

_MOST_MESSAGE = 500

SampledRows = list[tuple[int, bytes | None]]
"""Row kinds and packed rows, in the order in which they were written."""


@dataclass
class WrittenSample:
    """The last changes of each sink, and the last dead letters, without their keys, values and headers."""

    rows: dict[str, SampledRows] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)

    def add_letters(self, letters: Iterable[DeadLetter]) -> None:
        """Add the last ones of these dead letters."""
        kept = [*letters][-MOST_ROWS:]
        self.letters += [
            replace(each, key=None, value=None, headers=(), message=each.message[:_MOST_MESSAGE]) for each in kept
        ]


def last_rows(changes: Changes) -> SampledRows:
    """Return the last rows of a sink's changes."""
    first = max(0, len(changes) - MOST_ROWS)
    payloads = (each.as_py() for each in changes.payload[first:])
    kinds = changes.kind[first:].tolist()
    return [
        (kind, payload if len(payload) <= _MOST_BYTES else None) for kind, payload in zip(kinds, payloads, strict=True)
    ]
