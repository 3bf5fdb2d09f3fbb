"""Normalize against its definition: the folded output is the folded input, and duplicates emit nothing.

The definition of an upsert topic is `Materialised`: the last row of each key. Half the changes of these changelogs are
rows that come again, are replaced, or go twice. Under a clock the rows that expired are forgotten and stay out.
"""

from __future__ import annotations

import functools

import pytest

from rowkind.operators.join.input import Side
from rowkind.operators.normalize.normalize import Normalize
from tests import changelogs
from tests.oracle.inputs import Batches, Input, random_batches, with_refreshes
from tests.oracle.naive_join import NaiveSide, Steps
from tests.oracle.trials import Work, changes_differ, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)


@pytest.mark.parametrize("ttl_ms", [None, 3])
@pytest.mark.parametrize(
    "of",
    [Input("one row per key", by_seq=True), Input("multiset", by_seq=False), Input("multiset", by_seq=True)],
    ids=["upsert", "multiset", "multiset by seq"],
)
def test_each_batch_emits_what_changes_among_the_rows(
    of: Input, ttl_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch emits the difference between the rows after it and before it, and refreshes of those written."""
    for trial in trials(f"normalize, {of}, {ttl_ms}", seeds(25), monkeypatch):
        hashed = trial.generator.choice(changelogs.HASHES)
        batches = with_refreshes(random_batches([of], trial.seed, batches=8), trial.seed)
        trial.check(functools.partial(_difference, of, ttl_ms, hashed), batches)


@finding
def _difference(of: Input, ttl_ms: int | None, hashed: changelogs.Hash, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches, whose times depend on their number; None if nothing is."""
    work, naive = (
        Work(Normalize(Side(of.layout, ttl_ms, of.by_seq), refreshes=True), folds=False),
        NaiveSide(of, ttl_ms),
    )
    for now, batch in timed(batches):
        naive.expire(now)
        before = naive.stored
        naive.apply(batch, now)
        steps = Steps.between(before, naive.stored, now)
        output = work.process(changelogs.packed(batch, [of.table], hashed), now)
        if wrong := changes_differ(work.number, output.emitted, steps):
            return wrong
    return None
