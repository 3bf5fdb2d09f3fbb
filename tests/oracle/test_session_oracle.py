"""Sessions against their definition: after every batch the output equals the definition over the folded input.

Half of the changes are repeated inserts, retractions and unmatched retractions. Times are so close that an inserted row
may merge two sessions, and a retracted row may split one. Hashes are strong and weak, and segments have a few rows.
These tests detect wrong starts and ends in any batch, retractions of rows that are not in the output, output that is
not net, and retractions wrongly counted, or not counted, as unmatched. With a TTL, expired rows stay in the output, and
no row is in it twice with two starts. With a watermark, ended sessions do not change, and at the end no state is left.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter

import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.time.session import Session
from tests import changelogs
from tests.changelogs import Change, Row, changed, refreshed
from tests.oracle.inputs import Batches, Materialised, PartitionedInput, random_batches, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.oracle.sessions import in_sessions, spec, time
from tests.oracle.trials import Work, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

GAPS = (1, 2, 3, 4, 7, 100)


@pytest.mark.parametrize("goes_by", ["nothing", "a ttl", "a watermark"])
@pytest.mark.parametrize("by_seq", [True, False])
@pytest.mark.parametrize("ends", [False, True])
def test_the_windows_are_those_of_the_definition_after_every_batch(
    goes_by: str, by_seq: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives every row with the start of its session, and its end if requested."""
    compare = {"nothing": _difference, "a ttl": _with_a_clock, "a watermark": _with_a_watermark}[goes_by]
    for trial in trials(f"session, {goes_by}, {by_seq}{', with ends' * ends}", seeds(40), monkeypatch):
        generator = trial.generator
        of = PartitionedInput("multiset", by_seq=by_seq, hashed=generator.choice(changelogs.HASHES))
        batches = random_batches([of], trial.seed, batches=10, changes=generator.choice([3, 15]))
        batches = with_refreshes(batches, trial.seed) if goes_by == "a ttl" else batches
        trial.check(functools.partial(compare, of, generator.choice(GAPS), ends), batches)


@pytest.mark.parametrize(
    ("rows", "starts"),
    [
        ([(-50, 1), (-50, 8), (9, 4)], {1: 1, 8: 1, 4: 1}),
        ([(-50, 1), (9, 4)], {1: 1, 4: 4}),
        ([(-50, 1), (8, 4)], {1: 1, 4: 1}),
    ],
    ids=["inside of one that goes on", "behind one that has ended", "in the last ms of one"],
)
def test_a_row_joins_what_has_not_ended(rows: list[tuple[int, int]], starts: dict[int, int]) -> None:
    """A row joins a session that has not ended; the gap is 7, and the first session is evicted at 16."""
    of = PartitionedInput("multiset", by_seq=True)
    work = Work(Session(spec(7, of, closes=True)))
    of_time = {time(row): row for row in itertools.product(range(6), [1], range(6))}
    for seq, (watermark, at) in enumerate(rows):
        change = Change(0, RowKind.INSERT, of_time[at], seq)
        work.process(of.columns([change]), watermark)
    assert {time(row): row[3] for row in work.view} == starts


@finding
def _difference(of: PartitionedInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    work, state = Work(Session(spec(gap, of, ends=ends))), Materialised(of)
    for batch in batches:
        unmatched = state.apply(batch)
        output = work.process(of.columns(batch))
        if wrong := work.differs(output, unmatched, in_sessions(state.rows, gap, ends=ends)):
            return wrong
    return None


@finding
def _with_a_clock(of: PartitionedInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """Return how the inserted, retracted and refreshed rows, apart from their starts, are wrong if rows expire."""
    ttl_ms = 3
    work, naive = Work(Session(spec(gap, of, ttl_ms=ttl_ms, refreshes=True, ends=ends))), NaiveSide(of, ttl_ms)
    for now, batch in timed(batches):
        naive.expire(now)
        before = Counter(one.row for one in naive.stored)
        naive.apply(batch, now)
        after = Counter(one.row for one in naive.stored)
        emitted = work.process(of.columns(batch), now).emitted
        found = Counter[Row]()
        for row, weight in changed(emitted.rows).items():
            found[row[:3]] += weight
        step = after.copy()
        step.subtract(before)
        if {row: weight for row, weight in found.items() if weight} != {row: n for row, n in step.items() if n}:
            return f"batch {work.number} emits {dict(found)}, expected {dict(step)}"
        if any(row not in work.view for row in refreshed(emitted)):
            return f"batch {work.number} refreshes rows that are not there: {refreshed(emitted)}"
    return None


@finding
def _with_a_watermark(of: PartitionedInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """Return how the output is wrong if a watermark ends sessions: their starts must stay, and no row may join them."""
    work, state, ended = Work(Session(spec(gap, of, closes=True, ends=ends))), Materialised(of), Counter[Row]()
    for watermark, batch in zip(_watermarks(batches), batches, strict=True):
        open_ = Counter(state.rows) - Counter(row[:3] for row in ended.elements())
        ended += _ended(in_sessions(open_.elements(), gap, ends=ends), gap, watermark)
        batch = [change for change in batch if time(change.row) + gap >= watermark]  # noqa: PLW2901 -- the rest is late
        state.apply(batch)
        work.process(of.columns(batch), watermark)
        open_ = Counter(state.rows) - Counter(row[:3] for row in ended.elements())
        if wrong := work.differs_from(ended + in_sessions(open_.elements(), gap, ends=ends)):
            return f"{wrong}, at {watermark}"
    work.process(of.columns([]), 1 << 40)
    return f"in the end of time there is {work.blobs}" if work.blobs else None


def _watermarks(batches: Batches) -> list[int]:
    """Return the watermark before each batch: a time among those of the rows so far, never decreasing."""
    found, seen, last = [], list[int](), -100
    for number, batch in enumerate(batches):
        last = max(last, sorted(seen)[len(seen) * number // (number + 2)]) if seen else last
        found.append(last)
        seen += [time(change.row) for change in batch]
    return found


def _ended(rows: Counter[Row], gap: int, watermark: int) -> Counter[Row]:
    """Return the rows of sessions whose last time plus gap is before the watermark."""
    last: dict[tuple[int | None, int | None], int] = {}
    for row in rows:
        at = row[1], row[3]
        last[at] = max(last.get(at, time(row)), time(row))
    return Counter({row: count for row, count in rows.items() if last[row[1], row[3]] + gap < watermark})
