"""Sessions against their definition: after every batch the output is what it makes of all rows of the folded input.

Half the changes are rows that come again, go, or go without being there, at times so close to each other that a row
makes two sessions one, or its going makes two of one; with strong and weak hashes and segments of a few rows. These
tests see wrong starts and ends in any batch, rows taken back that are not there, output that is not net, and
retractions wrongly (not) counted as unmatched. With a TTL rows that expired stay out, and no row is there twice with
two starts. With a watermark sessions that have ended stay as they are, and in the end of time nothing is left.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter

import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.time.session import Session
from tests import changelogs
from tests.changelogs import Change, Row, changed, fold, net, refreshed, show
from tests.oracle.findings import finding, operating
from tests.oracle.inputs import Batches, Materialised, random_batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveSide
from tests.oracle.sessions import SessionInput, in_sessions, spec, time
from tests.seeds import seeds

CASES_EACH = seeds(40)
GAPS = (1, 2, 3, 4, 7, 100)


@pytest.mark.parametrize("goes_by", ["nothing", "a ttl", "a watermark"])
@pytest.mark.parametrize("by_seq", [True, False])
@pytest.mark.parametrize("ends", [False, True])
def test_the_windows_are_those_of_the_definition_after_every_batch(
    goes_by: str, by_seq: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives every row with the start of its session, and its end if asked for."""
    for number in CASES_EACH:
        seed = f"session, {goes_by}, {by_seq}, {number}{', with ends' * ends}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        of = SessionInput("multiset", by_seq=by_seq, hashed=generator.choice(changelogs.HASHES))
        rows = generator.choice([3, segment.SEGMENT_ROWS])
        with monkeypatch.context() as patch:
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = random_batches([of], seed, batches=10, changes=generator.choice([3, 15]))
            batches = with_refreshes(batches, seed) if goes_by == "a ttl" else batches
            compare = {"nothing": _difference, "a ttl": _with_a_clock, "a watermark": _with_a_watermark}[goes_by]
            difference = functools.partial(compare, of, generator.choice(GAPS), ends)
            if difference(batches) is not None:
                least = shrink(batches, lambda smaller: difference(smaller) is not None)  # noqa: B023 - called at once
                pytest.fail(f"seed '{seed}'\n{show(least)}\n{difference(least)}")


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
    """Rows by the watermark before them and their times, with a gap of 7; the first one is let go of at 16."""
    of = SessionInput("multiset", by_seq=True)
    operator, view = Session(spec(7, of, closes=True)), Counter[Row]()
    stores = {name: MemoryStore() for name in operator.arrangements}
    of_time = {time(row): row for row in itertools.product(range(6), [1], range(6))}
    for seq, (watermark, at) in enumerate(rows):
        change = Change(0, RowKind.INSERT, of_time[at], seq)
        fold(view, operator.process(of.columns([change]), stores, watermark).rows)
    assert {time(row): row[3] for row in +view} == starts


@finding
def _difference(of: SessionInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches; None if nothing is."""
    operator = Session(spec(gap, of, ends=ends))
    stores = {name: MemoryStore() for name in operator.arrangements}
    state, view = Materialised(of), Counter[Row]()
    for number, batch in enumerate(batches):
        unmatched = state.apply(batch)
        with operating(number):
            output = operator.process(of.columns(batch), stores, 0)
            fold(view, output.rows)
        expected = in_sessions(state.rows, gap, ends=ends)
        if +view != expected:
            return f"after batch {number}: {dict(+view)}, expected {dict(expected)}"
        if not net(output.rows):
            return f"batch {number} emits what cancels: {dict(changed(output.rows))}"
        if len(output.unmatched) != len(unmatched):
            return f"batch {number}: {len(output.unmatched)} unmatched, expected {len(unmatched)}"
    return None


@finding
def _with_a_clock(of: SessionInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """The same where rows expire: the rows that go and come, whatever their starts, and which are refreshed."""
    ttl_ms = 3
    operator, naive = Session(spec(gap, of, ttl_ms=ttl_ms, refreshes=True, ends=ends)), NaiveSide(of, ttl_ms)
    stores = {name: MemoryStore() for name in operator.arrangements}
    view = Counter[Row]()
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        naive.expire(now)
        before = Counter(one.row for one in naive.stored)
        naive.apply(batch, now)
        after = Counter(one.row for one in naive.stored)
        with operating(number):
            emitted = operator.process(of.columns(batch), stores, now).emitted
            fold(view, emitted.rows)
        found = Counter[Row]()
        for row, weight in changed(emitted.rows).items():
            found[row[:3]] += weight
        step = after.copy()
        step.subtract(before)
        if {row: weight for row, weight in found.items() if weight} != {row: n for row, n in step.items() if n}:
            return f"batch {number} emits {dict(found)}, expected {dict(step)}"
        if any(row not in view for row in refreshed(emitted)):
            return f"batch {number} refreshes rows that are not there: {refreshed(emitted)}"
    return None


@finding
def _with_a_watermark(of: SessionInput, gap: int, ends: bool, batches: Batches) -> str | None:
    """The same where sessions end: the rows of one that has ended keep their start, and no row joins them any more."""
    operator = Session(spec(gap, of, closes=True, ends=ends))
    stores = {name: MemoryStore() for name in operator.arrangements}
    state, view, ended = Materialised(of), Counter[Row](), Counter[Row]()
    for number, (watermark, batch) in enumerate(zip(_watermarks(batches), batches, strict=True)):
        open_ = Counter(state.rows) - Counter(row[:3] for row in ended.elements())
        ended += _ended(in_sessions(open_.elements(), gap, ends=ends), gap, watermark)
        batch = [change for change in batch if time(change.row) + gap >= watermark]  # noqa: PLW2901 -- the rest is late
        state.apply(batch)
        with operating(number):
            fold(view, operator.process(of.columns(batch), stores, watermark).rows)
        open_ = Counter(state.rows) - Counter(row[:3] for row in ended.elements())
        expected = ended + in_sessions(open_.elements(), gap, ends=ends)
        if +view != expected:
            return f"after batch {number} at {watermark}: {dict(+view)}, expected {dict(expected)}"
    operator.process(of.columns([]), stores, 1 << 40)
    left = {name: list(store) for name, store in stores.items() if list(store)}
    return f"in the end of time there is {left}" if left else None


def _watermarks(batches: Batches) -> list[int]:
    """The watermark before each batch: somewhere among the times of the rows so far, and never going back."""
    found, seen, last = [], list[int](), -100
    for number, batch in enumerate(batches):
        last = max(last, sorted(seen)[len(seen) * number // (number + 2)]) if seen else last
        found.append(last)
        seen += [time(change.row) for change in batch]
    return found


def _ended(rows: Counter[Row], gap: int, watermark: int) -> Counter[Row]:
    """The rows of sessions whose last time and the gap are before the watermark."""
    last: dict[tuple[int | None, int | None], int] = {}
    for row in rows:
        at = row[1], row[3]
        last[at] = max(last.get(at, time(row)), time(row))
    return Counter({row: count for row, count in rows.items() if last[row[1], row[3]] + gap < watermark})
