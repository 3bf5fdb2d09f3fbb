"""The contract between a stateful operator and whatever runs it.

The caller guarantees
- that all changes of one key of one operator reach the same shard, and that a shard's batches come one at a time and
  in order;
- that `now` never goes back, and is the same when a batch is replayed; it is the time of the batch, or where rows are
  kept by times of their own, a watermark;
- that dead letters never reach an operator;
- one `BlobStore` per name in `arrangements`, as the previous batch left it.

The operator guarantees
- that its result depends on the changes, the stores and `now` only, and not on the order in which changes stand in
  the batch: order is what `seq` says;
- that the rows it emits are net: materialising them after every batch gives the operator's definition over the
  materialised inputs, and a row that did not change is not emitted;
- that rows that go come before rows that come (the order of changes: `operators.emission`);
- that where somebody further down has a TTL (`refreshes` in its spec), a row that did not change is emitted as a
  refresh, if the batch wrote something that it was made of: once for each time that it comes and goes, or is kept;
- that a refresh which reaches it renews the written-at of the row that it names, of equal ones the oldest, and nothing
  else: where no row expires, a result with refreshes is the one without;
- that a retraction which finds no row changes nothing and comes back in `unmatched`, unless it is counted in `expired`;
- that an insertion which replaces a row, in a join's input where none should, comes back in `repeated`.

Not re-checked: that hashes belong to keys, that payloads are valid under their schema, that unique keys are unique.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows


@dataclass(frozen=True, slots=True)
class Output:
    """What one batch of one shard gave: net changes (+I, -D), refreshes beside them, unmatched retractions, state size.

    `merged_rows` is how many rows of state were read to be merged. `expired` is how many retractions found no row in an
    input with a TTL and were taken for those of rows that had expired. `repeated` are insertions that found a row with
    their unique key in an input that should replace none: the key is not unique, or an update lacks its -U.
    `failed` are changes that would be among `rows`, but for a result that does not fit its type, which is NULL here.
    `due` is a time, by the operator's own clock, before which nothing happens without changes; None where nothing will.
    """

    emitted: Emitted
    unmatched: Changes
    state: StateSize
    merged_rows: int = 0
    expired: int = 0
    repeated: Changes = field(default_factory=Changes.empty)
    due: int | None = None
    failed: Rows = field(default_factory=Rows.empty)

    @property
    def rows(self) -> Rows:
        """The net changes."""
        return self.emitted.rows


class Operator(Protocol):
    """A stateful operator: immutable, picklable, and the same object for every shard and batch."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The name of each arrangement it keeps and its TTL in ms, None for no TTL."""

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
