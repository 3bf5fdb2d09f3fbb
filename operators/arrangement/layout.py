"""The layouts of an arrangement. The plan chooses a layout according to the known unique keys.

An entry's *place* is its 64-bit sort position within a run. In the layout *ordered*, the sub-key is an order key: bytes
whose sort order is the rank order of a key's rows. The place then consists of 24 bits of the key's hash and the 40-bit
order code, so that the rows of a key can be read starting at the first one (`operators.arrangement.prefix_scan`). In
the layout *timed*, the place is a time. In the other layouts, the place consists of two 32-bit halves.

    one row per key   the key contains a unique key                        place = hash, 0
    unique key        the sub-key is a unique key                          place = hash, hash64(sub-key)
    multiset          nothing is unique                                    place = hash, hash64(payload)
    ordered           like multiset, sorted by the sub-key                 place = hash, order_code(sub-key)
    last write        one row per key, and no key is NULL                  place = hash, number of the batch
    timed             a timer queue, in order of time                      place = time, as its operator defines it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import UPPER
from rowkind.operators.columns import order_code
from rowkind.operators.columns.changes import Uint64s
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.columns.rowtime import RowTime

Layout = Literal["one row per key", "unique key", "multiset", "ordered", "last write", "timed"]

UPPER_ORDERED = ~np.uint64((1 << order_code.BITS) - 1)


def places(layout: Layout, hashes: Uint64s, sub_key: pa.BinaryArray, payload: pa.BinaryArray) -> Uint64s:
    """Return the places of rows in an arrangement with this layout."""
    match layout:
        case "one row per key" | "last write":
            return hashes & UPPER
        case "unique key":
            return (hashes & UPPER) | (hash64(sub_key) >> np.uint64(32))
        case "multiset":
            return (hashes & UPPER) | (hash64(payload) >> np.uint64(32))
        case "ordered":
            return (hashes & UPPER_ORDERED) | order_code.order_code(sub_key)
        case "timed":
            raise AssertionError("the places of entries in a timer queue are assigned by the operator")


@dataclass(frozen=True, slots=True)
class ArrangementSpec:
    """The layout and the options of an arrangement.

    - `ttl_ms`, `until`: a row becomes invisible at written_at + `ttl_ms`, or at the time that `until` returns for the
      row.
    - `latest_first`: whether rows with the same place are stored latest first, so that they can be read in that order.
      This option is ignored in layout *last write*.
    - `by_number`: whether equal rows are counted in layout *ordered*, because only their number matters, not when they
      were inserted. In layouts *multiset* and *timed*, equal rows are always counted unless `arrivals` is set. With a
      TTL, they are never counted.
    - `alike`: a function of payloads for layout *multiset*. Rows are equal if the function returns the same bytes for
      their payloads.
    """

    name: str
    layout: Layout
    ttl_ms: int | None = None
    latest_first: bool = False
    by_number: bool = False
    arrivals: bool = False
    until: RowTime | None = None
    alike: Callable[[pa.BinaryArray], pa.BinaryArray] | None = None

    @property
    def replaces(self) -> bool:
        """Whether an entry replaces earlier entries with the same key."""
        return self.layout == "last write"

    @property
    def counts(self) -> bool:
        """Whether equal rows are counted."""
        by_number = self.by_number or (self.layout in ("multiset", "timed") and not self.arrivals)
        return by_number and self.ttl_ms is None

    def expired_until(self, now: int) -> int | None:
        """Return the latest `written_at` that has expired at time `now`, or None if rows never expire."""
        if self.until is not None:
            return now
        return None if self.ttl_ms is None else now - self.ttl_ms
