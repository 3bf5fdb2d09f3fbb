"""As-of joins against their definition after every batch, for any split of both sides' changes into batches.

Half of the changes are repeated inserts, retractions and unmatched retractions. Times are so close to each other that
most changes alter the matches of other rows. Hashes are strong and weak, and segments have a few rows.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from rowkind.operators.temporal_join.asof import AsofJoin
from rowkind.operators.temporal_join.versions import Deletes
from tests import changelogs
from tests.changelogs import changed, refreshed
from tests.oracle.asof import COMPARISONS, Comparison, Versions, complete, joined, spec
from tests.oracle.inputs import Batches, Input, random_batches, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.oracle.trials import Work, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)


@pytest.mark.parametrize(
    ("comparison", "versions"), [*((each, None) for each in COMPARISONS), *((">=", each) for each in get_args(Deletes))]
)
@pytest.mark.parametrize("padded", [False, True])
def test_each_left_row_takes_the_nearest_right_one_after_every_batch(
    comparison: Comparison, versions: Deletes | None, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives every left row with the right row that the definition finds."""
    for trial in trials(f"asof, {comparison}, {padded}, {versions}", seeds(40), monkeypatch):
        generator = trial.generator
        sides = [Input("multiset", by_seq=generator.random() < 0.5) for _ in range(2)]
        hashed = generator.choice(changelogs.HASHES)
        batches = random_batches(sides, trial.seed, batches=10, changes=generator.choice([3, 15]))
        difference = functools.partial(_difference, comparison, sides, hashed, padded=padded, versions=versions)
        trial.check(difference, complete(batches, timed=versions is None))


@finding
def _difference(
    comparison: Comparison,
    sides: list[Input],
    hashed: changelogs.Hash,
    batches: Batches,
    *,
    padded: bool,
    versions: Deletes | None,
) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    work = Work(AsofJoin(spec(comparison, *sides, padded=padded, versions=versions)))
    left, right = NaiveSide(sides[0], None), NaiveSide(sides[1], None)
    table = None if versions is None else Versions(versions)
    for batch in batches:
        unmatched = left.apply([change for change in batch if change.side == 0], 0)
        if table is not None:
            table.apply(change for change in batch if change.side == 1)
        else:
            unmatched += right.apply([change for change in batch if change.side == 1], 0)
        output = work.process(changelogs.packed(batch, [of.table for of in sides], hashed))
        there = right.stored if table is None else table.stored
        expected = joined(comparison, [one.row for one in left.stored], there, padded=padded)
        if wrong := work.differs(output, len(unmatched), expected):
            return wrong
    return None


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_left_rows_that_have_expired_stay_as_they_are(
    comparison: Comparison, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a TTL a left row is corrected until it expires; rows written again are refreshed if they exist."""
    ttl_ms = 3
    for trial in trials(f"asof with a clock, {comparison}, {padded}", seeds(20), monkeypatch):
        sides = [Input("multiset", by_seq=True) for _ in range(2)]
        batches = with_refreshes(complete(random_batches(sides, trial.seed, batches=10)), trial.seed)
        plain = spec(comparison, *sides, padded=padded, refreshes=True)
        work = Work(AsofJoin(replace(plain, left_ttl_ms=ttl_ms)), folds=False)
        left, right = NaiveSide(sides[0], ttl_ms), NaiveSide(sides[1], None)
        for now, batch in timed(batches):
            left.expire(now)
            before = joined(comparison, [one.row for one in left.stored], right.stored, padded=padded)
            late = left.apply([change for change in batch if change.side == 0], now)
            before += joined(comparison, [one.row for one in late], right.stored, padded=padded)
            right.apply([change for change in batch if change.side == 1], now)
            after = joined(comparison, [one.row for one in left.stored], right.stored, padded=padded)
            output = work.process(changelogs.packed(batch, [of.table for of in sides]), now)
            step = after.copy()
            step.subtract(before)
            assert changed(output.rows) == Counter({row: n for row, n in step.items() if n}), batch
            assert output.expired == len(late), batch
            again = refreshed(output.emitted)
            assert all(after[row] for row in again), batch
            written = [one.row for one in left.stored if one.written_at == now]
            kept = joined(comparison, written, right.stored, padded=padded)
            assert all(row in again or row in changed(output.rows) for row in kept), batch
