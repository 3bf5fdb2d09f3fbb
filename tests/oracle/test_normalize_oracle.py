"""Normalize against its definition: the folded output is the folded input, and duplicates emit nothing.

The definition of an upsert topic is `Materialised`: the last row of each key. Half the changes of these changelogs are
rows that come again, are replaced, or go twice. Under a clock the rows that expired are forgotten and stay out.
"""

from __future__ import annotations

import functools
import random

import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.join.input import Side
from rowkind.operators.normalize.normalize import Normalize
from tests import changelogs
from tests.changelogs import show
from tests.oracle.findings import changes_differ, finding, operating
from tests.oracle.inputs import Batches, Input, random_batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveSide, Steps
from tests.seeds import seeds

CASES_EACH = seeds(25)


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
    for number in CASES_EACH:
        seed = f"normalize, {of}, {ttl_ms}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        hashed = generator.choice(changelogs.HASHES)
        rows = generator.choice([3, segment.SEGMENT_ROWS])
        with monkeypatch.context() as patch:
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = with_refreshes(random_batches([of], seed, batches=8), seed)
            difference = functools.partial(_difference, of, ttl_ms, hashed)
            if difference(batches) is not None:
                least = shrink(batches, lambda smaller: difference(smaller) is not None)  # noqa: B023 - called at once
                pytest.fail(f"seed '{seed}'\n{show(least)}\n{difference(least)}")


@finding
def _difference(of: Input, ttl_ms: int | None, hashed: changelogs.Hash, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches, whose times depend on their number; None if nothing is."""
    operator = Normalize(Side(of.layout, ttl_ms, of.by_seq), refreshes=True)
    naive = NaiveSide(of, ttl_ms)
    stores = {name: MemoryStore() for name in operator.arrangements}
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        naive.expire(now)
        before, steps = {id(one): one for one in naive.stored}, Steps()
        naive.apply(batch, now)
        after = {id(one): one for one in naive.stored}
        for at, one in (before | after).items():
            steps.add(one.row, was=at in before, is_=at in after, written=one.written_at == now)
        with operating(number):
            emitted = operator.process(changelogs.packed(batch, [of.table], hashed), stores, now).emitted
        if wrong := changes_differ(number, emitted, steps.net, steps.refreshed):
            return wrong
    return None
