"""The rank against its naive form under a driven clock: expiring rows, refreshes, late retractions.

SQL has no expiry, so the definition here is `NaiveRank`. These tests detect retractions of rows that are not in the
output, or under a number other than the emitted one, marks lost in merges, and rows that count for too long or too
short a time.
"""

from __future__ import annotations

import functools

import pytest

from rowkind.operators.arrangement import compaction, prefix_scan
from rowkind.operators.rank import rank
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import RankFunction, Ranking, Strategy, Ties
from tests.oracle.inputs import Batches, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.oracle.ranked import CONDITIONS, NaiveRank, RankInput, RowFilter, changelog, identity, numbered
from tests.oracle.trials import Work, changes_differ, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

STRATEGIES: tuple[Strategy, ...] = ("append", "improving", "retract")
FUNCTIONS: tuple[RankFunction, ...] = ("row_number", "rank", "dense_rank")
TIES: tuple[Ties, ...] = ("earliest first", "latest first")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_each_batch_emits_is_what_the_definition_says(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the naive rank's changes and refreshes, and retracts no row that is not in the output."""
    most_in_vain, many = compaction.MOST_IN_VAIN, prefix_scan.MANY
    for trial in trials(f"clock, {strategy}", seeds(8), monkeypatch, least_rows=2):
        generator = trial.generator
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
        admits = generator.choice([None, None, RowFilter(asked, sql, holds)])
        settles = not bounded and (admits is None or sql == CONDITIONS[-1][0])
        with_number = generator.random() < 0.5 and (bounded or settles)
        spec = RankSpec(
            Ranking(
                generator.choice(FUNCTIONS[: 2 if strategy == "improving" else 3]),
                first,
                last if bounded else None,
                generator.choice(TIES),
                strategy,
                max(first - 1, 1) if settles else None,
            ),
            numbered=numbered if with_number else None,
            numbers=generator.choice([(), *((each,) for each in FUNCTIONS)]) if bounded or settles else (),
            admits=admits,
            asked=(asked,) if admits else (),
            identity=identity if strategy == "improving" else None,
            ttl_ms=generator.choice([1, 2, 5]),
            by_seq=of.by_seq,
            refreshes=generator.random() < 0.7,
        )
        monkeypatch.setattr(compaction, "MOST_IN_VAIN", generator.choice([0, most_in_vain]))
        monkeypatch.setattr(rank, "MARGIN", generator.choice([0, 1]))
        monkeypatch.setattr(prefix_scan, "MANY", generator.choice([0, 1, many]))
        batches = changelog(spec, of, trial.seed, 14, 6)
        if spec.refreshes:
            batches = with_refreshes(batches, trial.seed)
        trial.check(functools.partial(_difference, spec, of), batches, spec, of)


@finding
def _difference(spec: RankSpec, of: RankInput, batches: Batches) -> str | None:
    """Return how the rank's output is wrong on these batches, whose times depend on their numbers; None if right."""
    work, naive, now = Work(Rank(spec)), NaiveRank(spec, of, NaiveSide(of, spec.ttl_ms)), 0
    for now, batch in timed(batches):
        steps = naive.process(batch, now)
        output = work.process(of.columns(batch), now)
        if wrong := changes_differ(work.number, output.emitted, steps, refreshes=spec.refreshes):
            return wrong
    assert spec.ttl_ms is not None
    work.process(of.columns([]), now + spec.ttl_ms)
    return "blobs are left although all rows have expired" if work.blobs else None
