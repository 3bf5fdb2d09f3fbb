"""Normalize against its definition: the folded output equals the folded input, and duplicates emit nothing.

`Materialised` defines an upsert topic: the last row of each key. Half of the changes in these changelogs are repeated
rows, replacements or repeated deletes. Under a clock, expired rows are dropped from state and stay in the output.
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
    """Every batch emits the difference between the rows before and after it, and refreshes of rewritten rows."""
    for trial in trials(f"normalize, {of}, {ttl_ms}", seeds(25), monkeypatch):
        hashed = trial.generator.choice(changelogs.HASHES)
        batches = with_refreshes(random_batches([of], trial.seed, batches=8), trial.seed)
        trial.check(functools.partial(_difference, of, ttl_ms, hashed), batches)


@finding
def _difference(of: Input, ttl_ms: int | None, hashed: changelogs.Hash, batches: Batches) -> str | None:
    """Return how the output is wrong on these batches, whose times depend on their numbers; None if it is right."""
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
