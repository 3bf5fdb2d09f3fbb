"""The order in which changes of several tables are replayed in memory.

Kafka orders the records of a partition only. Records of different partitions are ordered by their times, as far as the
order within each partition allows. The job may have read them in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.why.sources import SourceChanges

MOST_BATCHES = 2_000
"""If there are more changes, several of them are replayed together."""


@dataclass(frozen=True)
class ReplayBatch:
    """Changes that are replayed together: each table's rows, and the time in ms since the epoch."""

    rows: Mapping[str, Rows]
    now: int


@dataclass(frozen=True)
class Place:
    """A change of a table: its index among the table's changes, and the time of its record in ms since the epoch."""

    table: str
    index: int
    time: int


def one_batch(tables: Mapping[str, SourceChanges], now: int) -> Iterator[ReplayBatch]:
    """Yield all changes as one batch."""
    yield ReplayBatch({name: each.rows for name, each in tables.items()}, now)


def arrivals(tables: Mapping[str, SourceChanges]) -> list[list[Place]]:
    """Return the changes in order, a -U together with the +U that follows it in its partition."""
    groups: list[tuple[int, str, int, list[Place]]] = []
    for table in sorted(tables):
        of = tables[table]
        times = of.arrival_times
        for partition in np.unique(ArrivalNumber.partitions(of.rows.seq)).tolist():
            at = np.flatnonzero(ArrivalNumber.partitions(of.rows.seq) == partition)
            at = at[np.argsort(of.rows.seq[at], kind="stable")]
            before = -1
            for index in at.tolist():
                place = Place(table, index, int(of.times[index]))
                if before == RowKind.UPDATE_BEFORE and of.rows.kind[index] == RowKind.UPDATE_AFTER:
                    groups[-1][3].append(place)
                else:
                    groups.append((int(times[index]), table, int(of.rows.seq[index]), [place]))
                before = int(of.rows.kind[index])
    return [places for *_, places in sorted(groups, key=lambda each: each[:3])]


def in_order(tables: Mapping[str, SourceChanges], now: int) -> Iterator[ReplayBatch]:
    """Yield the changes in order, in at most `MOST_BATCHES` batches, and at the end a batch at the time `now`."""
    groups = arrivals(tables)
    size = -(-len(groups) // MOST_BATCHES) or 1
    for start in range(0, len(groups), size):
        yield batch_of(tables, [place for group in groups[start : start + size] for place in group])
    yield ReplayBatch({}, now)


def batch_of(tables: Mapping[str, SourceChanges], places: list[Place]) -> ReplayBatch:
    """Return a batch of some changes."""
    indices: dict[str, list[int]] = {}
    for place in places:
        indices.setdefault(place.table, []).append(place.index)
    rows = {table: tables[table].rows.take(np.array(of, np.int64)) for table, of in indices.items()}
    return ReplayBatch(rows, max(place.time for place in places))
