"""The rank against its naive form under a driven clock: rows that expire, refreshes, rows that come back too late.

SQL knows no expiry, so here the definition is `NaiveRank`. These tests see a row that is taken back though it is not
out, or under another number than the one it is out with, marks that go astray in merges, and rows that count too long
or not long enough.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from rowkind.operators.arrangement import compaction, prefix_scan, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.rank import rank
from rowkind.operators.rank.rank import Rank, RankSpec, Strategy
from rowkind.operators.rank.ranking import RankFunction, Ranking, Ties
from tests.changelogs import Row, fold, show
from tests.oracle.findings import changes_differ, finding, operating
from tests.oracle.inputs import Batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.oracle.ranked import CONDITIONS, Admits, NaiveRank, RankInput, changelog, identity, numbered
from tests.seeds import seeds

CASES_EACH = seeds(8)
STRATEGIES: tuple[Strategy, ...] = ("append", "improving", "retract")
FUNCTIONS: tuple[RankFunction, ...] = ("row_number", "rank", "dense_rank")
TIES: tuple[Ties, ...] = ("earliest first", "latest first")


@dataclass(frozen=True)
class Case:
    """What is computed of which input."""

    spec: RankSpec
    of: RankInput


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_each_batch_emits_is_what_the_definition_says(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the changes and refreshes that the naive rank does, and no row goes that is not there."""
    for number in CASES_EACH:
        seed = f"clock, {strategy}, {number}"
        generator = random.Random(seed)
        of = RankInput(
            "unique key" if strategy == "improving" else "multiset",
            by_seq=generator.random() < 0.5,
            stretch=generator.choice([1, 2]),
            descending=generator.random() < 0.5,
            ordered=generator.random() < 0.9,
        )
        first, last = generator.choice([(1, 1), (1, 2), (2, 3)])
        bounded = strategy != "retract" or generator.random() < 0.6
        sql, holds = generator.choice(CONDITIONS)
        asked = generator.choice(FUNCTIONS)
        admits = generator.choice([None, None, Admits(asked, sql, holds)])
        settles = not bounded and (admits is None or sql == CONDITIONS[-1][0])
        with_number = generator.random() < 0.5 and (bounded or settles)
        spec = RankSpec(
            Ranking(
                generator.choice(FUNCTIONS[: 2 if strategy == "improving" else 3]),
                first,
                last if bounded else None,
                generator.choice(TIES),
            ),
            strategy,
            numbered=numbered if with_number else None,
            numbers=generator.choice([(), *((each,) for each in FUNCTIONS)]) if bounded or settles else (),
            admits=admits,
            asked=(asked,) if admits else (),
            settled=max(first - 1, 1) if settles else None,
            identity=identity if strategy == "improving" else None,
            ttl_ms=generator.choice([1, 2, 5]),
            by_seq=of.by_seq,
            refreshes=generator.random() < 0.7,
        )
        with monkeypatch.context() as patch:
            rows = generator.choice([2, segment.SEGMENT_ROWS])
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            patch.setattr(compaction, "MOST_IN_VAIN", generator.choice([0, compaction.MOST_IN_VAIN]))
            patch.setattr(rank, "MARGIN", generator.choice([0, 1]))
            patch.setattr(prefix_scan, "MANY", generator.choice([0, 1, prefix_scan.MANY]))
            batches = changelog(spec, of, seed, 14, 6)
            if spec.refreshes:
                batches = with_refreshes(batches, seed)
            case = Case(spec, of)
            if _difference(case, batches) is not None:
                least = shrink(batches, functools.partial(_fails, case))
                pytest.fail(f"seed '{seed}', {case}\n{show(least)}\n{_difference(case, least)}")


def _fails(case: Case, batches: Batches) -> bool:
    return _difference(case, batches) is not None


@finding
def _difference(case: Case, batches: Batches) -> str | None:
    """What is wrong with the rank on these batches, whose times depend on their number alone; None if nothing is."""
    operator, naive = Rank(case.spec), NaiveRank(case.spec, case.of, NaiveSide(case.of, case.spec.ttl_ms))
    stores = {name: MemoryStore() for name in operator.arrangements}
    view: Counter[Row] = Counter()
    now = 0
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        expected = naive.process(batch, now)
        with operating(number):
            output = operator.process(case.of.columns(batch), stores, now)
            fold(view, output.rows)
        refreshes = expected.refreshed if case.spec.refreshes else None
        if wrong := changes_differ(number, output.emitted, expected.net, refreshes):
            return wrong
    assert case.spec.ttl_ms is not None
    operator.process(case.of.columns([]), stores, now + case.spec.ttl_ms)
    return "blobs are left although all rows have expired" if any(list(store) for store in stores.values()) else None
