"""The last changes of each sink, and the last dead letters of a query, as the write tasks have reported them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.service.kafka.written_sample import MOST_ROWS, WrittenSample
from rowkind.service.monitoring.status import LetterStatus, WrittenChange


@dataclass
class _Entry:
    """A change of a sink. `row` is its payload until the status is requested, so that a fast job decodes none."""

    at: float
    kind: int
    row: bytes | Mapping[str, Any] | None


@dataclass
class LastRows:
    """The last 20 changes of each sink, and the last 20 dead letters. `records`: the sinks' schemas."""

    records: Mapping[str, Record]
    _rows: dict[str, deque[_Entry]] = field(default_factory=dict)
    _letters: deque[LetterStatus] = field(default_factory=lambda: deque(maxlen=MOST_ROWS))

    def add(self, sample: WrittenSample, now: float) -> None:
        """Add the sample of a task that has written it, at this Unix time."""
        for sink, rows in sample.rows.items():
            kept = self._rows.setdefault(sink, deque(maxlen=MOST_ROWS))
            kept += (_Entry(now, kind, payload) for kind, payload in rows)
        self._letters += (
            LetterStatus(now, each.table, each.stage, each.message, each.topic, each.partition, each.offset)
            for each in sample.letters
        )

    def changes(self, sink: str) -> tuple[WrittenChange, ...]:
        """Return the last changes of a sink, newest first."""
        entries = self._rows.get(sink, ())
        packed = [(each, each.row) for each in entries if isinstance(each.row, bytes)]
        if packed:
            rows = decode(self.records[sink], pa.array([payload for _, payload in packed], pa.binary()))
            for (entry, _), row in zip(packed, rows, strict=True):
                entry.row = row
        return tuple(
            WrittenChange(each.at, SYMBOLS[each.kind], None if isinstance(each.row, bytes) else each.row)
            for each in reversed(entries)
        )

    def letters(self) -> tuple[LetterStatus, ...]:
        """Return the last dead letters, newest first."""
        return tuple(reversed(self._letters))
