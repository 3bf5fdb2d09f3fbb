"""Single row: the result of a scalar subquery, which must not have more than one row.

Maintains the input's rows in one arrangement, "rows", and emits the changes to these rows. After each batch, the
operator checks that there is at most one row. Within a batch there may be more rows, because a batch may insert the new
row and delete the old row in either order. Flink's SINGLE_VALUE, by contrast, checks after every change. An expired row
does not count.
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
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.errors import RowFailed
from rowkind.operators.join.input import Side
from rowkind.operators.operator import Output


@dataclass(frozen=True, slots=True)
class SingleRow:
    """The operator for scalar subqueries.

    All input rows have the same key and are therefore in one shard. The layout is "multiset".

    `query` is the subquery's text. `refreshes` says whether a downstream operator has a TTL.
    """

    side: Side
    query: str
    refreshes: bool = False

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangement of the rows, and its TTL in ms."""
        return {"rows": self.side.ttl_ms}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch).

        Raises `RowFailed` if there is more than one row after the batch.
        """
        spec = ArrangementSpec("rows", self.side.layout, self.side.ttl_ms, until=self.side.until)
        rows = Arrangement(stores["rows"], spec, now)
        resolved = resolve(rows, batch, by_seq=self.side.by_seq)
        step = Entries.concat([-resolved.removed, resolved.added])
        count = int(rows.lookup(distinct(batch.changes.hash)).weight.sum() + step.weight.sum())
        if count > 1:
            raise RowFailed(
                f"the subquery {self.query} returned {count} rows, but only one is allowed",
                -1,
                int(resolved.added.seq.max()),
                "Make the subquery return one row: add a condition, or an aggregate such as MAX",
            )
        rows.append(step)
        rows.append(resolved.refreshed)
        finished = rows.finish()
        emitted = rewritten_rows(step, resolved.refreshed, arrivals=False, refreshes=self.refreshes)
        unmatched = batch.changes.take(resolved.unmatched)
        return Output(emitted, unmatched, finished.state, finished.merged_rows)
