"""The contract between a stateful operator and its caller.

The caller guarantees:

- that all changes with the same key are sent to the same shard of an operator, and that the batches of a shard are
  processed one at a time and in order;
- that `now` never decreases, and is the same when a batch is replayed; `now` is the batch's time or, if rows expire by
  their own times, a watermark;
- that dead letters never reach an operator;
- that there is a `BlobStore` for every name in `arrangements`, with the content that the previous batch left in it.

The operator guarantees:

- that its result depends only on the changes, the stores and `now`, not on the position of changes in the batch; the
  order of changes is defined by `seq`;
- that the rows it emits are net: if they are applied after every batch, the resulting table equals the operator's
  definition evaluated over its complete inputs, and an unchanged row is not emitted;
- that retractions precede insertions (`operators.columns.emission` describes the order of changes);
- that, if a downstream operator has a TTL (`refreshes` in this operator's spec), an unchanged output row is emitted as
  a refresh when the batch writes a row from which the output row is derived: once for each time that the output row is
  kept, or retracted and inserted again;
- that a refresh renews only the `written_at` of the row that it names, or of the oldest of several equal rows; if no
  row expires, the result is the same with and without refreshes;
- that a retraction without a matching row changes nothing and is returned in `unmatched`, unless it is counted in
  `expired`;
- that an insertion into a join's input is returned in `repeated` if it replaces a row where no row should exist.

The operator does not check that each hash is that of its key, that payloads conform to their schema, or that unique
keys are unique.
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

    - `merged_rows`: the number of stored rows that were read for merges.
    - `expired`: the number of retractions that found no row in an input with a TTL. The rows that they retract are
      assumed to have expired.
    - `repeated`: insertions that found a row with the same unique key, in an input whose insertions should not replace
      rows. In this case, the key is not unique, or an update was sent without its -U.
    - `failed`: changes that are missing from `rows` because one of their results does not fit its type. In `failed`,
      this result is NULL.
    - `due`: the earliest time, by the operator's own clock, at which the output can change without new input; None if
      the output cannot change without new input.
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
        """The net changes, without refreshes."""
        return self.emitted.rows


class Operator(Protocol):
    """A stateful operator: immutable, picklable, and the same object for every shard and batch."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The TTL of each of the operator's arrangements in ms, by name; None if the arrangement has no TTL."""

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
