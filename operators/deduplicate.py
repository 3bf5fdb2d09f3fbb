"""Deduplicate: the first or the last row of each key, by event time or by arrival. It is the rank of ROW_NUMBER 1.

Maintains, of the rows of each key, the one with the first order key; of rows with equal ones, `first` keeps the earlier
arrival and `last` the later. State, "rows" in layout *ordered*: one row per key where the input only inserts, all rows
where it retracts, for then the next one must be known. Everything else, expiry too, is as in `operators.rank`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from operators.changes import Changes
from operators.operator import Output
from operators.rank import Rank, RankSpec
from operators.store import BlobStore


@dataclass(frozen=True, slots=True)
class DeduplicateSpec:
    """Which row of each key is kept, and what the plan must provide for it.

    Of the changes, all of side 0:

    - `key`: comparable bytes of the columns whose duplicates go, null safe: never null.
    - `sub`: by event time, comparable bytes of the time column: ascending for `first`, descending for `last`, with
      NULLs where they rank as SQL says. By arrival, empty: seq alone decides.
    - `seq`: arrival, as scans and operators number it.

    `input` is `append` where rows only come, and `retract` where every retraction carries the full row that it takes
    back. By arrival, all rows of a key are ties: to find a retracted one, the payloads of all of them are compared.
    `by_seq`, `counts_unmatched` and `ttl_ms` are those of `RankSpec`.
    """

    keep: Literal["first", "last"]
    input: Literal["append", "retract"]
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """The operator; it has no state of its own."""

    spec: DeduplicateSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
        return self._rank.arrangements

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        return self._rank.process(changes, stores, now)

    @property
    def _rank(self) -> Rank:
        spec = self.spec
        return Rank(
            RankSpec(
                "row_number",
                1,
                1,
                spec.input,
                ties="earliest first" if spec.keep == "first" else "latest first",
                ttl_ms=spec.ttl_ms,
                by_seq=spec.by_seq,
                counts_unmatched=spec.counts_unmatched,
            )
        )
