"""Normalize: the exact +I and -D rows of an input that leaves out old rows, repeats rows or retracts what is not there.

Maintains its input's rows, as the input's layout defines them: the last row of each key for an upsert topic, the
multiset of rows for a source without a key. One arrangement, "rows", holds them by key.

What comes out is what changes in there. A row that is replaced goes as it is stored, whatever its retraction or its
tombstone looks like; a row that comes again as it is emits nothing; a retraction that finds nothing changes nothing
and is unmatched. So whoever comes after may count on every retraction having its insertion, byte for byte.

A row that has expired is gone without a word: it stays in the output, and its successor comes as a new row. A later
retraction of it ends here as unmatched, as in Flink's own normalization: whether it is one too many, which is what a
normalize is there to hold back, or one that comes late, cannot be told. A row that comes again as it is goes on as a
refresh where somebody further down has a TTL.

A truncation retracts all rows that are stored (`operators.truncation`).

The arrival number of a row is that of the change that wrote it last. With `arrivals`, a row that is written again with
equal values is retracted with its old number and inserted with its new one, so that its place among equal rows does not
depend on the cut of the input into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.resolving import resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.join_input import Side
from rowkind.operators.netting import rewritten_rows
from rowkind.operators.operator import Output
from rowkind.operators.truncation import spelled_out_truncations


@dataclass(frozen=True, slots=True)
class Normalize:
    """The operator; it has no state of its own.

    The plan provides: for an upsert topic, or a retract topic whose bare +U replaces, the layout "one row per key" with
    the primary key as key and no sub-key, by seq; for a retract topic without a primary key, the layout "multiset" with
    any key that spreads the rows, the one of the consumer say. A tombstone needs its key only; its payload is not read.
    `refreshes`: whether a downstream operator has a TTL. `arrivals`: whether one goes by the order of arrival.
    """

    side: Side
    refreshes: bool = False
    arrivals: bool = False

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
        return {"rows": self.side.ttl_ms}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        side = self.side
        rows = Arrangement(
            stores["rows"],
            ArrangementSpec(
                "rows", side.layout, side.ttl_ms, arrivals=self.arrivals, until=side.until, alike=side.alike
            ),
            now,
        )
        batch = spelled_out_truncations(rows, batch)
        resolved = resolve(rows, batch, by_seq=side.by_seq)
        step = Entries.concat([-resolved.removed, resolved.added])
        rows.append(step)
        rows.append(resolved.refreshed)
        finished = rows.finish()
        return Output(
            rewritten_rows(step, resolved.refreshed, arrivals=self.arrivals, refreshes=self.refreshes),
            batch.changes.take(resolved.unmatched) if side.counts_unmatched else Changes.empty(),
            finished.state,
            finished.merged_rows,
        )
