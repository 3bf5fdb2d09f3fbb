"""The aggregate against its naive form under a driven clock: groups expire as a whole and begin again empty.

By definition a group consists of the rows since it began. If it does not change for the TTL, it is dropped with all its
rows; its output stays. These tests detect values that outlive their group or are dropped before it, retractions of
results of expired groups, and state that is left behind.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import pvariance

import pytest

from rowkind.operators.aggregate.aggregate import Aggregate
from tests.changelogs import Change, Row, strong_hash
from tests.oracle.aggregates import AGGREGATES, Aggregated, row_of, spec_of
from tests.oracle.inputs import Batches, random_batches, with_refreshes
from tests.oracle.naive_join import Steps
from tests.oracle.test_aggregate_oracle import INPUT, Case, columns
from tests.oracle.trials import Work, changes_differ, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

NAIVE = {
    "count(*)": len,
    "count(v)": lambda rows: sum(row[2] is not None for row in rows),
    "CAST(sum(v) AS BIGINT)": lambda rows: _sum(row[2] for row in rows),
    "min(v)": lambda rows: min(_values(rows), default=None),
    "max(v)": lambda rows: max(_values(rows), default=None),
    "count(DISTINCT v)": lambda rows: len(set(_values(rows))),
    "avg(DISTINCT v)": lambda rows: sum(values) / len(values) if (values := set(_values(rows))) else None,
    "coalesce(sum(v * v * 1000 + 1), 0)": lambda rows: sum(v * v * 1000 + 1 for v in _values(rows)),
    "var_pop(v / 4)": lambda rows: pvariance([v / 4 for v in values]) if (values := _values(rows)) else None,
    "max(v * 1000 + coalesce(id, 0))": lambda rows: max(
        (row[2] * 1000 + (row[0] or 0) for row in rows if row[2] is not None), default=None
    ),
    "sum(v * 1.01)": lambda rows: None if (total := _sum(_values(rows))) is None else total * Decimal("1.01"),
}


def test_what_each_batch_emits_is_what_the_definition_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the same changes and refreshes as the naive aggregate."""
    candidates = [one for one in AGGREGATES if one.sql in NAIVE]
    for trial in trials("aggregate with a clock", seeds(30), monkeypatch, least_rows=2):
        generator = trial.generator
        chosen = tuple(generator.sample(candidates, generator.randint(1, 5)))
        case = Case(chosen, retracts=True, two_phase=generator.random() < 0.3, is_global=False, hashed=strong_hash)
        ttl_ms = generator.choice([1, 2, 4])
        batches = with_refreshes(random_batches([INPUT], trial.seed, batches=16, changes=4), trial.seed)
        trial.check(
            functools.partial(_difference, case, ttl_ms), _without_forgotten(batches, ttl_ms), f"ttl {ttl_ms}", case
        )


def test_nothing_is_left_of_groups_that_expired() -> None:
    """Once the TTL has passed since the last change twice over, the next batch empties all stores."""
    work = Work(Aggregate(spec_of(AGGREGATES, ttl_ms=10)), folds=False)
    case = Case(AGGREGATES, retracts=True, two_phase=False, is_global=False, hashed=strong_hash)
    for now, batch in enumerate(random_batches([INPUT], "expired", batches=5)):
        work.process(columns([change for change in batch if change.sign > 0], case), now)
    work.process(columns([], case), 100)
    assert not work.blobs


class _Naive:
    """The groups, each with its rows and the time of its last change."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self.groups: dict[int | None, tuple[Counter[Row], int]] = {}

    def expire(self, now: int) -> None:
        """Drop the groups whose TTL has expired."""
        self.groups = {key: group for key, group in self.groups.items() if group[1] + self._ttl_ms > now}

    def step(self, key: int | None, row: Row, sign: int, now: int) -> None:
        """Add or remove a row."""
        rows = self.groups.get(key, (Counter(), 0))[0]
        rows[row] += sign
        self.groups[key] = (rows, now)
        if not +rows:
            del self.groups[key]

    def apply(self, batch: Sequence[Change], now: int) -> None:
        """Apply a batch; a refresh updates the time of the row's group if the group exists."""
        for change in sorted(batch, key=lambda change: -change.sign):
            if change.sign:
                self.step(change.row[1], change.row, change.sign, now)
        for change in batch:
            if not change.sign and change.row[1] in self.groups:
                self.groups[change.row[1]] = (self.groups[change.row[1]][0], now)


def _without_forgotten(batches: Batches, ttl_ms: int) -> Batches:
    """Drop retractions of rows that are not present or have expired."""
    naive, result = _Naive(ttl_ms), []
    for now, batch in timed(batches):
        naive.expire(now)
        kept = []
        for change in sorted(batch, key=lambda change: -change.sign):
            rows = naive.groups.get(change.row[1], (Counter(), 0))[0]
            if change.sign >= 0 or rows[change.row] > 0:
                naive.apply([change] if change.sign else [], now)
                kept.append(change)
        naive.apply([change for change in kept if not change.sign], now)
        result.append([change for change in batch if change in kept])
    return result


def _results(naive: _Naive, aggregates: tuple[Aggregated, ...]) -> dict[int | None, Row]:
    return {
        key: row_of(key, [NAIVE[one.sql](list(rows.elements())) for one in aggregates])
        for key, (rows, _) in naive.groups.items()
    }


@finding
def _difference(case: Case, ttl_ms: int, batches: Batches) -> str | None:
    """Return how the aggregate's output is wrong on these batches; None if it is right or a retraction is unmatched."""
    if _without_forgotten(batches, ttl_ms) != batches:
        return None
    work = Work(Aggregate(replace(spec_of(case.aggregates, ttl_ms=ttl_ms), refreshes=True)), folds=False)
    naive = _Naive(ttl_ms)
    for now, batch in timed(batches):
        naive.expire(now)
        before = _results(naive, case.aggregates)
        naive.apply(batch, now)
        after, steps = _results(naive, case.aggregates), Steps()
        for key in before.keys() | after.keys():
            if before.get(key) == after.get(key):
                steps.add(after[key], was=True, is_=True, written=naive.groups[key][1] == now)
                continue
            for results, was in ((before, True), (after, False)):
                if key in results:
                    steps.add(results[key], was=was, is_=not was, written=False)
        output = work.process(columns(batch, case), now)
        if wrong := changes_differ(work.number, output.emitted, steps):
            return wrong
    return None


def _values(rows: list[Row]) -> list[int]:
    return [row[2] for row in rows if row[2] is not None]


def _sum(values: object) -> int | None:
    there = [value for value in values if value is not None]  # type: ignore[attr-defined]
    return sum(there) if there else None
