"""The join against its naive form under a driven clock: TTL on either side, refreshes, late retractions.

SQL has no expiry, so the definition here is `naive_join`. These tests detect null-padded rows that are retracted
without having been emitted or are emitted twice, marks lost in merges, and rows visible for too long or too short a
time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest

from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from tests import changelogs
from tests.changelogs import pack
from tests.oracle.inputs import Batches, Input, random_batches, with_refreshes
from tests.oracle.joins import LAYOUTS, LESS, TTLS, PairCondition
from tests.oracle.naive_join import NaiveJoin, NaiveSide
from tests.oracle.trials import Work, changes_differ, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")


@dataclass(frozen=True)
class Case:
    """The join, its inputs, and the TTL of each side."""

    kind: JoinKind
    inputs: tuple[Input, Input]
    ttls: tuple[int | None, int | None]
    condition: PairCondition | None
    refreshes: bool


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_batch_emits_is_what_the_definition_says(kind: JoinKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the same changes and refreshes as the naive join, for any time between batches."""
    for trial in trials(f"clock, {kind}", seeds(12), monkeypatch, least_rows=2):
        generator = trial.generator
        left, right = (Input(generator.choice(LAYOUTS), generator.random() < 0.5) for _ in range(2))
        ttls = (generator.choice(TTLS), generator.choice(TTLS))
        case = Case(kind, (left, right), ttls, generator.choice([None, LESS]), generator.random() < 0.7)
        batches = random_batches(case.inputs, trial.seed, batches=14, changes=6)
        if case.refreshes:
            batches = with_refreshes(batches, trial.seed)
        trial.check(functools.partial(_difference, case), batches, case)


@finding
def _difference(case: Case, batches: Batches) -> str | None:
    """Return how the join's output is wrong on these batches, whose times depend on their numbers; None if right."""
    sides = [Side(of.layout, ttl, of.by_seq) for of, ttl in zip(case.inputs, case.ttls, strict=True)]
    nulls = [pack(of.table.project((None, None, None))) for of in case.inputs]
    spec = JoinSpec(case.kind, sides[0], sides[1], case.condition, nulls[0], nulls[1], case.refreshes)
    work = Work(Join(spec), folds=False)
    naive_sides = [NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True)]
    holds = case.condition.holds if case.condition else lambda _left, _right: True
    naive, tables = NaiveJoin(case.kind, *naive_sides, holds), [of.table for of in case.inputs]
    for now, batch in timed(batches):
        steps = naive.process(batch, now)
        output = work.process(changelogs.packed(batch, tables), now)
        if wrong := changes_differ(work.number, output.emitted, steps, refreshes=case.refreshes):
            return wrong
        if output.expired != naive.expired:
            return f"batch {work.number} has {output.expired} retractions of expired rows, expected {naive.expired}"
    return None
