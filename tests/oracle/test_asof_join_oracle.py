"""As-of joins against their definition: after every batch, however the changes of both sides are cut.

Half the changes are rows that come again, go, or go without being there, at times so close to each other that most
change what other rows take; with strong and weak hashes and segments of a few rows.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.temporal_join.asof import AsofJoin
from rowkind.operators.temporal_join.versions import Deletes
from tests import changelogs
from tests.changelogs import Row, changed, fold, net, refreshed, show
from tests.oracle.asof import COMPARISONS, Comparison, Versions, complete, joined, spec
from tests.oracle.findings import finding, operating
from tests.oracle.inputs import Batches, Input, random_batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.seeds import seeds

CASES_EACH = seeds(40)


@pytest.mark.parametrize(
    ("comparison", "versions"), [*((each, None) for each in COMPARISONS), *((">=", each) for each in get_args(Deletes))]
)
@pytest.mark.parametrize("padded", [False, True])
def test_each_left_row_takes_the_nearest_right_one_after_every_batch(
    comparison: Comparison, versions: Deletes | None, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives every left row with the right row that the definition finds."""
    for number in CASES_EACH:
        seed = f"asof, {comparison}, {padded}, {versions}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        sides = [Input("multiset", by_seq=generator.random() < 0.5) for _ in range(2)]
        rows = generator.choice([3, segment.SEGMENT_ROWS])
        hashed = generator.choice(changelogs.HASHES)
        with monkeypatch.context() as patch:
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = random_batches(sides, seed, batches=10, changes=generator.choice([3, 15]))
            batches = complete(batches, timed=versions is None)
            difference = functools.partial(_difference, comparison, sides, hashed, padded=padded, versions=versions)
            if difference(batches) is not None:
                least = shrink(batches, lambda smaller: difference(smaller) is not None)  # noqa: B023 - called at once
                pytest.fail(f"seed '{seed}'\n{show(least)}\n{difference(least)}")


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
    """What is wrong with the operator on these batches; None if nothing is."""
    operator = AsofJoin(spec(comparison, *sides, padded=padded, versions=versions))
    stores = {name: MemoryStore() for name in operator.arrangements}
    left, right = NaiveSide(sides[0], None), NaiveSide(sides[1], None)
    table = None if versions is None else Versions(versions)
    view = Counter[Row]()
    for number, batch in enumerate(batches):
        unmatched = left.apply([change for change in batch if change.side == 0], 0)
        if table is not None:
            table.apply(change for change in batch if change.side == 1)
        else:
            unmatched += right.apply([change for change in batch if change.side == 1], 0)
        with operating(number):
            output = operator.process(changelogs.packed(batch, [of.table for of in sides], hashed), stores, 0)
            fold(view, output.rows)
        there = right.stored if table is None else table.stored
        expected = joined(comparison, [one.row for one in left.stored], there, padded=padded)
        if +view != expected:
            return f"after batch {number}: {dict(+view)}, expected {dict(expected)}"
        if not net(output.rows):
            return f"batch {number} emits what cancels"
        if len(output.unmatched) != len(unmatched):
            return f"batch {number}: {len(output.unmatched)} unmatched, expected {len(unmatched)}"
    return None


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_left_rows_that_have_expired_stay_as_they_are(comparison: Comparison, padded: bool) -> None:
    """With a TTL a left row is corrected while it lives, and what was written again is refreshed, if it is there."""
    ttl_ms = 3
    for number in seeds(20):
        seed = f"asof with a clock, {comparison}, {padded}, {number}"
        print(f"seed '{seed}'")
        sides = [Input("multiset", by_seq=True) for _ in range(2)]
        batches = with_refreshes(complete(random_batches(sides, seed, batches=10)), seed)
        plain = spec(comparison, *sides, padded=padded, refreshes=True)
        operator = AsofJoin(replace(plain, left_ttl_ms=ttl_ms))
        stores = {name: MemoryStore() for name in operator.arrangements}
        left, right = NaiveSide(sides[0], ttl_ms), NaiveSide(sides[1], None)
        for now, batch in zip(times(len(batches)), batches, strict=True):
            left.expire(now)
            before = joined(comparison, [one.row for one in left.stored], right.stored, padded=padded)
            late = left.apply([change for change in batch if change.side == 0], now)
            before += joined(comparison, [one.row for one in late], right.stored, padded=padded)
            right.apply([change for change in batch if change.side == 1], now)
            after = joined(comparison, [one.row for one in left.stored], right.stored, padded=padded)
            output = operator.process(changelogs.packed(batch, [of.table for of in sides]), stores, now)
            step = after.copy()
            step.subtract(before)
            assert changed(output.rows) == Counter({row: n for row, n in step.items() if n}), (seed, batch)
            assert output.expired == len(late), (seed, batch)
            again = refreshed(output.emitted)
            assert all(after[row] for row in again), (seed, batch)
            written = [one.row for one in left.stored if one.written_at == now]
            kept = joined(comparison, written, right.stored, padded=padded)
            assert all(row in again or row in changed(output.rows) for row in kept), (seed, batch)
