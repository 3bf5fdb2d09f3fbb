"""Operators on event time with the random changelogs that they accept.

The time of a batch is its number. A law that splits a changelog differently therefore changes the times. For those
laws, all times have passed before the first batch or never pass. If times pass between batches, only laws that do not
change the split apply.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.columns.rowtime import END
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from rowkind.operators.temporal_join.lookup import LookupJoin, LookupJoinSpec
from rowkind.operators.time.session import Session
from rowkind.operators.time.temporal_filter import TemporalFilter, TemporalFilterSpec
from tests.changelogs import Change, Row, pack, unpack
from tests.laws.subjects import Subject
from tests.oracle.inputs import Batches, Input, PartitionedInput
from tests.oracle.sessions import spec as sessions
from tests.oracle.sessions import time

_NEVER = 1_000_000


@dataclass(frozen=True)
class _Times:
    """The time of a row, from one of its columns; `missing` if the column is NULL."""

    column: int
    of: tuple[int, int, int, int]
    missing: int

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the time of each row."""
        return np.array([self.at(unpack(payload)) for payload in payloads.to_pylist()], np.int64)

    def at(self, row: Row) -> int:
        """Return the time of a row."""
        value = row[self.column]
        return self.missing if value is None else self.of[value]


@dataclass(frozen=True)
class RightFirst(Subject):
    """A lookup join whose whole right side arrives before the first left row, so that the split does not matter."""

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog that begins with all changes of the right side."""
        mixed = super().batches(seed, batches=batches, changes=changes)
        sides = [[[change for change in batch if change.side == side] for batch in mixed] for side in (1, 0)]
        last = max((change.seq for batch in mixed for change in batch), default=0)
        left = [[replace(change, seq=change.seq + last) for change in batch] for batch in sides[1]]
        return [*sides[0], *left]


@dataclass(frozen=True)
class NotLate(Subject):
    """An operator under a watermark; late rows do not reach it."""

    until: Callable[[Row], int]

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog without late rows; the watermark is the number of the batch."""
        found = super().batches(seed, batches=batches, changes=changes)
        return [[change for change in batch if self.until(change.row) > now] for now, batch in enumerate(found)]

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        of = self.inputs[0]
        return of.columns(batch) if isinstance(of, PartitionedInput) else super().columns(batch)


def _filter(name: str, begins: _Times | None, ends: _Times | None, most: int | None = None) -> Subject:
    operator = TemporalFilter(TemporalFilterSpec(begins, ends, most))
    return Subject(f"temporal filter of rows that {name}", operator, (Input("multiset", by_seq=False),))


def _lookup(right: Input, *, padded: bool, first: bool) -> Subject:
    left = Input("multiset", by_seq=True)
    side = Side(right.layout, by_seq=right.by_seq, counts_unmatched=False)
    pad = pack(right.table.project((None, None, None))) if padded else None
    operator = LookupJoin(LookupJoinSpec(side, pad, left_by_seq=left.by_seq))
    name = f"{'left ' * padded}lookup join of {right.layout}{', which is there' * first}"
    return (RightFirst if first else Subject)(name, operator, (left, right))


_EVENTUALLY = _Times(2, (-5, _NEVER, -5, _NEVER), END)
_AT_LAST = _Times(0, (-3, _NEVER, _NEVER + 1, _NEVER), END)
_SOON, _SOON_OVER = _Times(2, (-5, 1, 2, 3), END), _Times(0, (1, 2, 3, 4), END)

FILTERS: tuple[Subject, ...] = (
    _filter("begin", _EVENTUALLY, None),
    _filter("end", None, _AT_LAST),
    _filter("begin and end", _EVENTUALLY, _AT_LAST),
)

_LOOKED_UP = (
    Input("one row per key", by_seq=True),
    Input("unique key", by_seq=True),
    Input("multiset", by_seq=True, key_in_payload=False),
)
_PADDED = tuple(itertools.product(_LOOKED_UP, (True, False)))

LOOKUPS: tuple[Subject, ...] = tuple(_lookup(right, padded=padded, first=True) for right, padded in _PADDED)

LOOKUPS_AT_ONCE: tuple[Subject, ...] = tuple(_lookup(right, padded=padded, first=False) for right, padded in _PADDED)
"""A left row matches the right rows that are present in its own batch."""


def _session(gap: int) -> Subject:
    of = PartitionedInput("multiset", by_seq=True)
    operator = Session(sessions(gap, of, closes=True))
    return NotLate(f"sessions with a gap of {gap} that end", operator, (of,), lambda row: time(row) + gap + 1)


def _window_join(kind: JoinKind) -> Subject:
    ends = _Times(1, (1, 2, 3, 4), END)
    of = Input("multiset", by_seq=True)
    side, pad = Side(of.layout, by_seq=True, until=ends), pack((None, None, None))
    return NotLate(f"{kind} join of windows", Join(JoinSpec(kind, side, side, None, pad, pad)), (of, of), ends.at)


_KINDS: tuple[JoinKind, ...] = ("inner", "left", "full")

WATERMARKS: tuple[Subject, ...] = (
    _filter("begin meanwhile", _SOON, None),
    _filter("end meanwhile", None, _SOON_OVER),
    _filter("begin and end meanwhile", _SOON, _SOON_OVER),
    _filter("begin meanwhile, a few with a batch", _SOON, None, 2),
    *(_session(gap) for gap in (2, 7)),
    *(_window_join(kind) for kind in _KINDS),
)
"""Operators whose time advances from batch to batch."""
