"""Expiry: an exact changelog (+I and -D) of an input's live rows, in which expired rows are retracted.

Maintains the input's rows that were written less than one TTL ago. Other operators drop an expired row silently. This
operator emits a -D when a row expires, and downstream operators retract the row's results as for any deleted row. So
the downstream query runs on the live rows and needs no TTL of its own.

State. Arrangement "rows" stores the rows as `operators.normalize.normalize` does; this operator is a Normalize with a
clock. Arrangement "agenda" is a timer queue. For each row, in the order of write times, it stores the row's *place* in
"rows", the 64-bit number by which a run's entries are ordered. A timer queue entry moves when its row is rewritten.

Algorithm. The due entries are one range of the timer queue, up to the time one TTL ago. First the rows to which the due
entries refer are removed. Then the batch's changes are applied to the remaining rows. If several live rows are equal, a
retraction removes the oldest of them. If a retraction finds no row, it is treated as the retraction of an expired row,
which has already been retracted. A row that expires and is inserted unchanged in the same batch stays in the output. A
refresh restarts its row's TTL, and is passed on if a downstream operator has a TTL.

All rows of a batch have the same write time, so rows that expire at the same time arrived in one batch. If too many
rows are due, for example after a pause, the oldest rows are removed first and the other due rows in the next batches.
Until they are removed, due rows count as live.

If rows are only inserted, and no row replaces another, rows need not be found by key. They are then stored in the timer
queue itself, and "rows" does not exist.

The stored times are write times, so the TTL can be changed at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import rewritten_rows
from rowkind.operators.arrangement.resolving import resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, constant
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.columns.rowtime import BEGINNING
from rowkind.operators.columns.value_bytes import from_bytes, to_bytes
from rowkind.operators.join.input import Side
from rowkind.operators.normalize.truncation import spelled_out_truncations
from rowkind.operators.operator import Output
from rowkind.operators.time.temporal_filter import last_place, places, time_at

_AT_ONCE = 500_000
"""The approximate maximum number of due rows that are removed in one batch."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry operator. It keeps its state in the stores, not in this object. It raises no errors.

    The plan provides the same input as for a `Normalize`, and a TTL.

    - `only_comes`: whether the input is an insert-only table without a key by which a row could be rewritten.
    - `most`: the approximate maximum number of due rows that are removed in one batch.
    - `refreshes`: whether a downstream operator has a TTL.
    - `arrivals`: whether a downstream operator uses the order of arrival.
    """

    side: Side
    only_comes: bool = False
    most: int = field(default_factory=lambda: _AT_ONCE)
    refreshes: bool = False
    arrivals: bool = False

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements: the timer queue and, if needed, the rows. Neither has a TTL of its own."""
        return {"agenda": None} if self.only_comes else {"agenda": None, "rows": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        agenda = Arrangement(stores["agenda"], ArrangementSpec("agenda", "timed", arrivals=self.arrivals), now)
        due, until = self._due(agenda, now)
        agenda.append(-due)
        if self.only_comes:
            return self._arrivals(batch.changes, agenda, due, until, now)
        side = self.side
        rows = self._rows(stores["rows"], now, BEGINNING)
        gone = rows.at(distinct(from_bytes(due.payload, pa.uint64()).to_numpy()))
        gone = gone.filter(gone.written_at <= until)
        assert gone.weight.sum() == due.weight.sum(), "the timer queue must have an entry for each row"
        # All rows removed by this batch or earlier ones were written at or before `until`. So `alive` contains exactly
        # the rows that remain after the due rows have been removed.
        alive = self._rows(stores["rows"], now, until)
        batch = spelled_out_truncations(alive, batch)
        resolved = resolve(alive, batch, by_seq=side.by_seq, exact=side.exact)
        step = Entries.concat([-gone, -resolved.removed, resolved.added])
        rows.append(step)
        rows.append(resolved.refreshed)
        agenda.append(_entries(Entries.concat([-resolved.removed, resolved.added, resolved.refreshed])))
        finished = Finished.total(rows.finish(), agenda.finish())
        counts = side.counts_unmatched
        return Output(
            rewritten_rows(step, resolved.refreshed, arrivals=self.arrivals, refreshes=self.refreshes),
            batch.changes.take(resolved.overtaken) if counts else Changes.empty(),
            finished.state,
            finished.merged_rows,
            expired=len(resolved.unmatched) - len(resolved.overtaken) if counts else 0,
            repeated=batch.changes.take(resolved.repeated),
            due=self._next(agenda, until),
        )

    def _arrivals(self, changes: Changes, agenda: Arrangement, due: Entries, until: int, now: int) -> Output:
        """Apply a batch of an insert-only input."""
        assert (changes.weight > 0).all(), "an insert-only table must not have retractions"
        count, none = len(changes), constant(b"", len(changes))
        numbers, place = np.zeros(count, np.int64), places(np.full(count, now), changes.payload)
        come = Entries(
            place, changes.hash, none, none, changes.payload, numbers + 1, numbers, changes.seq, numbers.astype(np.int8)
        )
        agenda.append(come)
        noted = agenda.finish()
        step = Entries.concat([-due, come])
        return Output(
            rewritten_rows(step, Entries.empty(), arrivals=self.arrivals, refreshes=self.refreshes),
            Changes.empty(),
            noted.state,
            noted.merged_rows,
            due=self._next(agenda, until),
        )

    def _rows(self, store: BlobStore, now: int, until: int) -> Arrangement:
        """Open the arrangement of rows that were written after `until`; new rows get the write time `now`."""
        side = self.side
        return Arrangement(
            store,
            ArrangementSpec(
                "rows", side.layout, side.ttl_ms, until=lambda rows: np.full(len(rows), now), alike=side.alike
            ),
            until,
        )

    def _due(self, agenda: Arrangement, now: int) -> tuple[Entries, int]:
        """Return the entries that expire in this batch, and the latest write time at which rows expire."""
        assert self.side.ttl_ms is not None, "without a TTL nothing expires"
        until = now - self.side.ttl_ms
        due = agenda.between(np.zeros(1, np.uint64), np.array([last_place(until)]))
        if len(due) > self.most:
            until = time_at(int(np.partition(due.place, self.most - 1)[self.most - 1]))
            due = due.filter(due.place <= last_place(until))
        return due, until

    def _next(self, agenda: Arrangement, until: int) -> int | None:
        """Return a time no later than the next expiry of a row; None if there are no rows."""
        assert self.side.ttl_ms is not None, "without a TTL nothing expires"
        place = agenda.first_after(int(last_place(until)))
        return None if place is None else time_at(place) + self.side.ttl_ms


def _entries(rows: Entries) -> Entries:
    """Return the timer queue entries of the given rows; their places are ordered by write time."""
    at, none, numbers = to_bytes(pa.array(rows.place)), constant(b"", len(rows)), np.zeros(len(rows), np.int64)
    place = places(rows.written_at, at)
    return Entries(place, rows.hash, none, none, at, rows.weight, numbers, numbers, numbers.astype(np.int8))
