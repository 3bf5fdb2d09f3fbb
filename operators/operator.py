"""The contract between a stateful operator and its caller.

The caller guarantees
- that all changes of one key of one operator reach the same shard, and that a shard's batches arrive one at a time and
  in order;
- that `now` never decreases, and is the same when a batch is replayed; it is the time of the batch or, if the retention
  of rows depends on their own times, a watermark;
- that dead letters never reach an operator;
- one `BlobStore` per name in `arrangements`, as the previous batch left it.

The operator guarantees
- that its result depends only on the changes, the stores and `now`, not on the position of changes in the batch: `seq`
  defines their order;
- that the rows it emits are net: materialising them after every batch gives the operator's definition over the
  materialised inputs, and an unchanged row is not emitted;
- that retractions precede insertions (the order of changes: `operators.columns.emission`);
- that if a downstream operator has a TTL (`refreshes` in its spec), an unchanged row is emitted as a refresh if the
  batch wrote a row from which it is derived: once for each time that it is retracted and inserted, or kept;
- that a refresh renews only the written-at of the row that it names, or of the oldest of several equal rows: if no row
  expires, the result is the same with and without refreshes;
- that a retraction without a matching row changes nothing and is returned in `unmatched`, unless it is counted in
  `expired`;
- that an insertion into a join's input that replaces a row where none should exist is returned in `repeated`.

Not checked again: that hashes belong to keys, that payloads are valid under their schema, that unique keys are unique.
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
    """The result of one batch of one shard: net changes (+I, -D), refreshes, unmatched retractions and state size.

    - `merged_rows`: the number of rows of state that were read for merges.
    - `expired`: the number of retractions that found no row in an input with a TTL, and whose rows are assumed to have
      expired.
    - `repeated`: insertions that found a row with their unique key, in an input in which insertions should replace no
      row: the key is not unique, or an update lacks its -U.
    - `failed`: changes that would be in `rows`, but have a result that does not fit its type, which is NULL here.
    - `due`: the time, by the operator's own clock, before which nothing happens without changes; None for never.
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
        """The name of each arrangement that the operator keeps, with its TTL in ms or None."""

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
