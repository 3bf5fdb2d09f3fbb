"""Merges, retractions and expiry in any order: the output is the same, and in the end no state is left.

In every order, these events happen one after the other: two rows of one key are inserted, one of them is retracted,
everything written so far expires, and all runs are merged into one. The output must equal that of an operator that
never merges.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.arrangement import compaction
from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.join.join import Join
from rowkind.operators.join.semi_join import SemiJoin
from rowkind.operators.normalize.expiry import Expiry
from rowkind.operators.normalize.normalize import Normalize
from rowkind.operators.operator import Operator, Output
from rowkind.operators.over.over import Over
from rowkind.operators.rank.rank import Rank
from rowkind.operators.temporal_join.asof import AsofJoin
from rowkind.operators.time.session import Session
from tests.changelogs import Change
from tests.laws.cases import ALL
from tests.laws.laws import exactly
from tests.laws.pattern_subjects import PATTERNS
from tests.laws.subjects import Subject
from tests.laws.time_subjects import FILTERS, LOOKUPS, LOOKUPS_AT_ONCE, WATERMARKS
from tests.seeds import some

TTL = 10
EVENTS = ("a row comes", "another comes", "the first goes", "time runs out", "all is merged")
CHANGES = {
    "a row comes": (RowKind.INSERT, (1, 1, 1)),
    "another comes": (RowKind.INSERT, (2, 1, 1)),
    "the first goes": (RowKind.DELETE, (1, 1, 1)),
}
ORDERS = [
    order for order in itertools.permutations(EVENTS) if order.index("a row comes") < order.index("the first goes")
]
FEW = 2
NEVER = 1000

NAMES = (
    "left join of unique key by seq, multiset by seq",
    "semi join of multiset, unique key",
    "anti join of unique key, multiset",
    "null-aware anti join of unique key, multiset",
    "row_number of append",
    "row_number with its number of retract",
    "rank of retract",
    "row_number of improving",
    "deduplicate, first by time of append",
    "deduplicate, last by arrival of retract",
    "distinct rows, one phase",
    "sums, one phase",
    "extremes, two phases",
    "normalize of one row per key",
    "expiry of one row per key",
    "expiry of multiset",
    "sessions with a gap of 2 by seq",
    "a running sum and minimum by seq",
    "frames of rows and values by seq",
    "left as-of join by >=",
)
SUBJECTS = [one for one in ALL if one.name in NAMES]
OTHERS = (*PATTERNS, *FILTERS, *LOOKUPS, *LOOKUPS_AT_ONCE, *WATERMARKS)


def with_ttl(operator: Operator) -> Operator:
    """Return the operator with a TTL on every input that may have one."""
    match operator:
        case Join(spec):
            left, right = (replace(side, ttl_ms=TTL) for side in (spec.left, spec.right))
            return Join(replace(spec, left=left, right=right))
        case SemiJoin(spec):
            left = replace(spec.left, ttl_ms=TTL)
            right = spec.right if spec.kind == "null-aware anti" else replace(spec.right, ttl_ms=TTL)
            return SemiJoin(replace(spec, left=left, right=right))
        case Normalize(side) | Expiry(side):
            return replace(operator, side=replace(side, ttl_ms=TTL))
        case Rank(spec):
            return Rank(replace(spec, ttl_ms=TTL))
        case Aggregate(spec):
            return Aggregate(replace(spec, ttl_ms=TTL))
        case Session(spec):
            return Session(replace(spec, ttl_ms=TTL))
        case Over(spec):
            return Over(replace(spec, ttl_ms=TTL))
        case AsofJoin(spec):
            return AsofJoin(replace(spec, left_ttl_ms=TTL))
    raise AssertionError(f"{operator} is not known here")


@dataclass(frozen=True)
class Reached:
    """The situation of an operator after some events: its state, the time, and its output per event except merges."""

    stores: dict[str, MemoryStore]
    now: int
    outputs: tuple[Any, ...]


class History:
    """The events of an operator in any order; orders with a common beginning share its results."""

    def __init__(self, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        self._subject, self._operator, self._patch = subject, with_ttl(subject.operator), monkeypatch
        self._reached: dict[tuple[str, ...], Reached] = {
            (): Reached({name: MemoryStore() for name in self._operator.arrangements}, 0, ())
        }

    def outputs(self, order: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the output of each event, applied to every side at once; check that in the end no state is left."""
        reached = self._after(order)
        self._process([], stores := _copies(reached), reached.now + 2 * TTL)
        left = {name for name, store in stores.items() if list(store)}
        # These right sides never expire: the result depends on whether a row exists or was valid at a time.
        whole = {"right", "facts"} if re.match(".*(null-aware|as-of)", self._subject.name) else set()
        assert left <= whole, "blobs are left of expired rows"
        return reached.outputs

    def _after(self, order: tuple[str, ...]) -> Reached:
        if order not in self._reached:
            self._reached[order] = self._next(self._after(order[:-1]), order[-1])
        return self._reached[order]

    def _next(self, reached: Reached, event: str) -> Reached:
        stores, now = _copies(reached), reached.now + (TTL if event == "time runs out" else 0)
        merges = event == "all is merged"
        output = exactly(self._process(self._changes(event), stores, now, merges=merges))
        if not merges:
            return Reached(stores, now, (*reached.outputs, output))
        assert not any(output), "a merge emits nothing"
        blobs = [store.get(MANIFEST) for store in stores.values()]
        assert all(len(Manifest.from_blob(blob, "rows").runs) < FEW for blob in blobs if blob is not None)
        return Reached(stores, now, reached.outputs)

    def _changes(self, event: str) -> list[Change]:
        if event not in CHANGES:
            return []
        kind, row = CHANGES[event]
        seq = 2 * EVENTS.index(event)
        return [Change(side, kind, row, seq + side) for side in range(len(self._subject.inputs))]

    def _process(
        self, batch: list[Change], stores: dict[str, MemoryStore], now: int, *, merges: bool = False
    ) -> Output:
        self._patch.setattr(compaction, "FACTOR", 2 if merges else NEVER)
        return self._operator.process(self._subject.columns(batch), stores, now)


def _copies(reached: Reached) -> dict[str, MemoryStore]:
    return {name: store.copy() for name, store in reached.stores.items()}


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_merges_change_nothing_whenever_they_happen(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each order of events the output equals that of an operator that merges nothing."""
    monkeypatch.setattr(compaction, "SMALL_RUN", 1 << 20)
    history = History(subject, monkeypatch)
    for order in some(ORDERS):
        unmerged = tuple(event for event in order if event != "all is merged")
        assert history.outputs(order) == history.outputs(unmerged), order


def test_every_operator_is_among_these() -> None:
    """Every operator with a TTL has a subject here; row patterns and operators on event time have no TTL."""
    assert len(SUBJECTS) == len(NAMES)
    assert {type(one.operator) for one in SUBJECTS} == {type(one.operator) for one in ALL if one not in OTHERS}
