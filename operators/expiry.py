"""Expiry: the exact +I and -D rows of an input that are alive, those that time takes away among them.

Maintains the rows of an input that were written no longer than a TTL ago. Elsewhere a TTL makes an operator forget a
row without a word; here its time is told: it goes out as -D, and whoever comes after takes back what was made of it,
as for any row that goes. So what lies above is the SQL over the rows that are alive, and needs no TTL of its own.

"rows" holds the rows, as `operators.normalize` does, which this is with a clock. "agenda" has for each of them, in the
order in which they were written, where it stands in there; an entry moves with its row when that is written again.

The walk: what is due is one range of the agenda, up to the time that lies a TTL back. The rows that it names go, and
then the changes of the batch meet what is left: a retraction takes of equal rows the oldest that is alive, and one that
finds none is taken for one of a row that has expired, which has been taken back already. A row that expires and comes
again in one batch, as it was, stays. A refresh renews its row, and goes on where somebody further down has a TTL.

All rows of a batch are written at one time, so those that go at one time once came in one batch. Of more that are due,
after a pause say, the oldest go first, and the others in the next batches; until then they are alive.

Where rows only come, and none replaces another, nothing has to be found by its key: the rows are in the agenda itself,
and there is nothing else.

The times that are kept are those at which rows were written. So a TTL may be made longer or shorter at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.resolving import resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, constant
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.columns.value_bytes import from_bytes, to_bytes
from rowkind.operators.join_input import Side
from rowkind.operators.netting import rewritten_rows
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import BEGINNING
from rowkind.operators.temporal_filter import last_place, places, time_at
from rowkind.operators.truncation import spelled_out_truncations

_AT_ONCE = 500_000
"""About how many rows go in one batch."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The operator; it has no state of its own. Raises nothing.

    The plan provides what it does for a `Normalize`, and a TTL. `only_comes`: the input is a table that only inserts,
    with no key by which a row could be written again. `most`: of the rows that are due, about how many go in one batch.
    `refreshes`: whether a downstream operator has a TTL. `arrivals`: whether one goes by the order of arrival.
    """

    side: Side
    only_comes: bool = False
    most: int = field(default_factory=lambda: _AT_ONCE)
    refreshes: bool = False
    arrivals: bool = False

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The agenda, and what it speaks of. Nothing of it expires by itself."""
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
        assert gone.weight.sum() == due.weight.sum(), "the agenda has an entry for each row"
        # What has gone before has been written at the same times, so that these are the rows after all that is due.
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
        """The same of rows that only come."""
        assert (changes.weight > 0).all(), "a table that only inserts takes nothing back"
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
        """The rows that were written later than `until`; what comes is written now."""
        side = self.side
        return Arrangement(
            store,
            ArrangementSpec(
                "rows", side.layout, side.ttl_ms, until=lambda rows: np.full(len(rows), now), alike=side.alike
            ),
            until,
        )

    def _due(self, agenda: Arrangement, now: int) -> tuple[Entries, int]:
        """What goes in this batch: the entries, and the last time at which the rows were written."""
        assert self.side.ttl_ms is not None, "without a TTL nothing expires"
        until = now - self.side.ttl_ms
        due = agenda.between(np.zeros(1, np.uint64), np.array([last_place(until)]))
        if len(due) > self.most:
            until = time_at(int(np.partition(due.place, self.most - 1)[self.most - 1]))
            due = due.filter(due.place <= last_place(until))
        return due, until

    def _next(self, agenda: Arrangement, until: int) -> int | None:
        """When the next row goes, or sooner."""
        assert self.side.ttl_ms is not None, "without a TTL nothing expires"
        place = agenda.first_after(int(last_place(until)))
        return None if place is None else time_at(place) + self.side.ttl_ms


def _entries(rows: Entries) -> Entries:
    """Where these rows stand, in the order in which they were written."""
    at, none, numbers = to_bytes(pa.array(rows.place)), constant(b"", len(rows)), np.zeros(len(rows), np.int64)
    place = places(rows.written_at, at)
    return Entries(place, rows.hash, none, none, at, rows.weight, numbers, numbers, numbers.astype(np.int8))
