"""Normalize: an exact changelog (+I and -D) of an input that may omit old rows, repeat rows or retract missing rows.

Maintains the input's rows, as the input's layout defines them: the last row of each key for an upsert topic, or the
multiset of rows for a source without a key. One arrangement, "rows", stores these rows by key.

The output is the changes to these rows. A replaced or deleted row is retracted with its stored payload, regardless of
the payload of its retraction or tombstone. A row that arrives unchanged emits nothing. A retraction that finds no row
changes nothing and is unmatched. So downstream operators can rely on every retraction being equal to an earlier
insertion, byte for byte.

A row expires silently: it stays in the output, and a row that later replaces it is emitted as a new row. A later
retraction of the expired row is unmatched, as in Flink's normalization, because a late retraction cannot be
distinguished from a superfluous retraction, which a Normalize must filter out. A row that arrives unchanged is emitted
as a refresh if a downstream operator has a TTL.

A truncation retracts all stored rows (`operators.normalize.truncation`).

A row's arrival number is the number of the change that last wrote the row. If `arrivals` is set, a row that is
rewritten with equal values is retracted with its old number and inserted with its new number. So the row's position
among tied rows does not depend on how the input is split into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import rewritten_rows
from rowkind.operators.arrangement.resolving import resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.join.input import Side
from rowkind.operators.normalize.truncation import spelled_out_truncations
from rowkind.operators.operator import Output


@dataclass(frozen=True, slots=True)
class Normalize:
    """The Normalize operator. It keeps its state in the stores, not in this object.

    The plan provides a layout. For an upsert topic, or a retract topic in which a +U without a -U replaces a row, the
    layout is "one row per key", with the primary key as key, no sub-key, and `by_seq` set. For a retract topic without
    a primary key, the layout is "multiset", with any key that distributes the rows, such as the downstream operator's
    key. A tombstone needs only a key; its payload is not read.

    - `refreshes`: whether a downstream operator has a TTL.
    - `arrivals`: whether a downstream operator uses the order of arrival.
    """

    side: Side
    refreshes: bool = False
    arrivals: bool = False

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangement of the rows, and its TTL in ms."""
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
