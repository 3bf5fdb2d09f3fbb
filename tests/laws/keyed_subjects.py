"""Semi joins, aggregates, normalize and expiry, with the random changelogs that they accept."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import add_up
from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.join.input import Side
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from rowkind.operators.normalize.expiry import Expiry
from rowkind.operators.normalize.normalize import Normalize
from tests import changelogs
from tests.changelogs import Change, pack
from tests.laws.subjects import Subject
from tests.oracle.aggregates import AGGREGATES, ARRIVALS, Aggregated, spec_of
from tests.oracle.facts import with_facts
from tests.oracle.inputs import Batches, Input


@dataclass(frozen=True)
class NotIn(Subject):
    """A null-aware anti join or mark join, with its facts."""

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        return with_facts(Subject.columns(self, batch))


@dataclass(frozen=True)
class Grouped(Subject):
    """An aggregate, whose keys are never NULL; with two phases there are three tasks, one of which sends raw rows."""

    aggregate: Aggregate
    two_phase: bool

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog; for a global aggregate, whose row appears at once, it starts with a change."""
        result = Subject.batches(self, seed, batches=batches, changes=changes)
        begun = itertools.dropwhile(lambda batch: not batch, result)
        return list(begun) if self.aggregate.spec.is_global else result

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        given, spec = changelogs.split(batch, self._keyed), self.aggregate.spec
        if not self.two_phase:
            return given
        changes = given.changes
        raw, *tasks = (changes.filter(changes.seq % 3 == number) for number in range(3))
        return replace(given, changes=Changes.concat([raw, *(add_up(spec, task) for task in tasks)]))

    def _keyed(self, batch: Sequence[Change]) -> Changes:
        changes = changelogs.changes(batch, [of.table for of in self.inputs])
        is_global = self.aggregate.spec.is_global
        key = binary(b"" if is_global else pack((change.row[1],)) for change in batch)
        return replace(changes, key=key, hash=hash64(key))


def _semi_join(kind: SemiJoinKind, left: Input, right: Input) -> Subject:
    operator = SemiJoin(
        SemiJoinSpec(
            kind,
            Side(left.layout, by_seq=left.by_seq),
            Side(right.layout, by_seq=right.by_seq),
            answers=(pack((0,)), pack((1,)), pack((None,))),
        )
    )
    name = f"{kind} join of {left.layout}, {right.layout}"
    return (NotIn if operator.spec.null_aware else Subject)(name, operator, (left, right))


def _aggregate(name: str, aggregates: Sequence[Aggregated], *, two_phase: bool, is_global: bool = False) -> Subject:
    operator = Aggregate(spec_of(aggregates, is_global=is_global))
    phases = "two phases" if two_phase else "one phase"
    return Grouped(f"{name}, {phases}", operator, (Input("multiset", by_seq=False),), operator, two_phase)


_LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
_KINDS: tuple[SemiJoinKind, ...] = ("semi", "anti", "mark")
_NULL_AWARE: tuple[SemiJoinKind, ...] = ("null-aware anti", "null-aware mark")
_LONG = 1_000_000
"""A TTL that never expires."""

SUBJECTS: tuple[Subject, ...] = (
    *(
        _semi_join(kind, Input(left, by_seq=left != right), Input(right, by_seq=True, key_in_payload=False))
        for kind in _KINDS
        for left, right in itertools.product(_LAYOUTS, repeat=2)
    ),
    *(
        _semi_join(kind, Input(left, by_seq=True), Input("multiset", by_seq=False))
        for kind, left in itertools.product(_NULL_AWARE, _LAYOUTS)
    ),
    *(
        _aggregate(name, aggregates, two_phase=two_phase)
        for name, aggregates in (
            ("distinct rows", ()),
            ("sums", [one for one in AGGREGATES if one.call.function in ("count", "sum", "avg")]),
            ("extremes", [one for one in AGGREGATES if one.call.function in ("min", "max", "any_value")]),
            ("arrivals", ARRIVALS),
            ("everything", AGGREGATES),
        )
        for two_phase in (False, True)
    ),
    *(
        Subject(f"normalize of {of.layout}", Normalize(Side(of.layout, by_seq=of.by_seq)), (of,))
        for of in (Input("one row per key", by_seq=True), Input("multiset", by_seq=False))
    ),
    *(
        Subject(f"expiry of {of.layout}", Expiry(Side(of.layout, _LONG, by_seq=of.by_seq)), (of,))
        for of in (Input("one row per key", by_seq=True), Input("multiset", by_seq=False))
    ),
)

GLOBAL: tuple[Subject, ...] = tuple(
    _aggregate("global", AGGREGATES[::2], two_phase=two_phase, is_global=True) for two_phase in (False, True)
)
"""Aggregates whose one row remains when all input rows are gone."""
