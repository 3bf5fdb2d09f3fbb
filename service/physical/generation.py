"""The contents of a generated table: which changes it has, at what rate, and the values of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FEWEST_NEW = 0.01
"""By how much the share of inserts must exceed that of deletes. Without new rows, the latest ones cannot be found."""


_PREFIX = "generate:"
"""The beginning of the names of generated topics. Kafka allows no colon in a name."""


def generated_topic(table: str) -> str:
    """Return the name that stands for a generated table's topic in offsets and messages."""
    return f"{_PREFIX}{table}"


def is_generated(topic: str) -> bool:
    """Return whether this is the name of a generated topic, which Kafka does not have."""
    return topic.startswith(_PREFIX)


@dataclass(frozen=True)
class ColumnValues:
    """The values of a generated column.

    - `kind`: drawn at random, or counted from `start` up to `end`. None: keys of whole numbers are counted, and other
      columns are random.
    - `min`, `max`: the range of random numbers, both included. `skew`: Zipf's exponent of whole numbers, of which the
      smallest is then the most frequent; 0 for equal frequencies.
    - `length`: the length of texts, bytes, arrays and maps. `var_len`: it is drawn from 1 to `length`.
    - `values`: the values to choose from, instead of a range, as texts.
    - `max_past_ms`: how far times lie before the change's own time at most.
    - `null_rate`: the share of NULL.
    """

    kind: Literal["random", "sequence"] | None = None
    min: float | None = None
    max: float | None = None
    start: int = 1
    end: int | None = None
    length: int | None = None
    var_len: bool = False
    values: tuple[str, ...] = ()
    max_past_ms: int = 0
    null_rate: float = 0.0
    skew: float = 0.0


@dataclass(frozen=True)
class Generation:
    """The changes of a generated table. Shares are from 0 to 1.

    - `rows_per_second`: how many changes the table gets. `number_of_rows`: how many in all, None for no end.
    - `updates`, `deletes`: shares of the changes, in a table that is not an append table; the others are inserts. Only
      the latest `keys` rows are updated or deleted, and with a `skew` above 0 (Zipf's exponent) the latest of them most
      often.
    - `late`: the share of changes whose times are 10 minutes old.
    - `seed`: equal seeds give equal changes, except for times.
    """

    rows_per_second: float = 10_000.0
    number_of_rows: int | None = None
    updates: float = 0.0
    deletes: float = 0.0
    late: float = 0.0
    keys: int = 10_000
    skew: float = 0.0
    seed: int = 0
    columns: Mapping[str, ColumnValues] = field(default_factory=dict)

    @property
    def most(self) -> int | None:
        """The number of changes in all: the first end of a sequence, or `number_of_rows`; None for no end."""
        ends = [
            each.end - each.start + 1
            for each in self.columns.values()
            if each.kind == "sequence" and each.end is not None
        ]
        ends += [] if self.number_of_rows is None else [self.number_of_rows]
        return min(ends, default=None)


@dataclass(frozen=True)
class Schedule:
    """When the records of a generated table are due, as if they were written to a topic.

    Change number i, from 0, is due at `begun` + i / rate, whether a job runs or not. `begun`: Unix time in ms.
    `stride`: the number of offsets per change.
    """

    of: Generation
    begun: int
    stride: int

    def end(self, now_ms: float) -> int:
        """Return the offset after the last record that is due at this Unix time, in ms."""
        due = int((now_ms - self.begun) * self.of.rows_per_second / 1000) + 1
        most = due if self.of.most is None else min(due, self.of.most)
        return max(0, most) * self.stride

    def time_ms(self, offset: int) -> int:
        """Return the time of the record at an offset."""
        return self.begun + int(offset // self.stride * 1000 / self.of.rows_per_second)
