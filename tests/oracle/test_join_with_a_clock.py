"""The join against its naive form under a driven clock: TTL on either side, refreshes, retractions that come too late.

SQL knows no expiry, so here the definition is `naive_join`. These tests see a pad that is taken back though it is not
out or emitted twice, marks that go astray in merges, and rows that stay visible too long or not long enough.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Mask
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from tests import changelogs
from tests.changelogs import Row, pack, show, unpack
from tests.oracle.findings import changes_differ, finding, operating
from tests.oracle.inputs import Batches, Input, random_batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveJoin, NaiveSide
from tests.seeds import seeds

CASES_EACH = seeds(12)
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
TTLS = (None, 2, 5)


@dataclass(frozen=True)
class Case:
    """What is joined, and how long the rows of each side live."""

    kind: JoinKind
    inputs: tuple[Input, Input]
    ttls: tuple[int | None, int | None]
    condition: Callable[[Row, Row], bool] | None
    refreshes: bool


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_batch_emits_is_what_the_definition_says(kind: JoinKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the changes and refreshes that the naive join does, whatever the time between batches."""
    for number in CASES_EACH:
        seed = f"clock, {kind}, {number}"
        generator = random.Random(seed)
        inputs = (
            Input(generator.choice(LAYOUTS), generator.random() < 0.5),
            Input(generator.choice(LAYOUTS), generator.random() < 0.5),
        )
        ttls = (generator.choice(TTLS), generator.choice(TTLS))
        condition = generator.choice([None, _less])
        with monkeypatch.context() as patch:
            rows = generator.choice([2, segment.SEGMENT_ROWS])
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = random_batches(inputs, seed, batches=14, changes=6)
            refreshes = generator.random() < 0.7
            if refreshes:
                batches = with_refreshes(batches, seed)
            case = Case(kind, inputs, ttls, condition, refreshes)
            if _difference(case, batches) is not None:
                least = shrink(batches, functools.partial(_fails, case))
                pytest.fail(f"seed '{seed}', {case}\n{show(least)}\n{_difference(case, least)}")


def _fails(case: Case, batches: Batches) -> bool:
    return _difference(case, batches) is not None


def _less(left: Row, right: Row) -> bool:
    return None not in (left[-1], right[-1]) and left[-1] < right[-1]  # type: ignore[operator]


def _mask(left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.array([_less(unpack(one), unpack(other)) for one, other in pairs], np.bool_)


@finding
def _difference(case: Case, batches: Batches) -> str | None:
    """What is wrong with the join on these batches, whose times depend on their number alone; None if nothing is."""
    sides = [Side(of.layout, ttl, of.by_seq) for of, ttl in zip(case.inputs, case.ttls, strict=True)]
    nulls = [pack(of.table.project((None, None, None))) for of in case.inputs]
    condition = None if case.condition is None else _mask
    join = Join(JoinSpec(case.kind, sides[0], sides[1], condition, nulls[0], nulls[1], case.refreshes))
    naive_sides = [NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True)]
    naive = NaiveJoin(case.kind, *naive_sides, case.condition or (lambda _left, _right: True))
    stores = {name: MemoryStore() for name in join.arrangements}
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        expected = naive.process(batch, now)
        with operating(number):
            output = join.process(changelogs.packed(batch, [of.table for of in case.inputs]), stores, now)
        if wrong := changes_differ(
            number, output.emitted, expected.net, expected.refreshed if case.refreshes else None
        ):
            return wrong
        if output.expired != naive.expired:
            return f"batch {number} has {output.expired} retractions of expired rows, expected {naive.expired}"
    return None
