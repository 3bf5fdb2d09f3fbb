"""Thousands of windows: their state stays flat, and windows that end at once are released over several batches."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.aggregate import timer_queue
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.service.plan.passes import delay_until_final
from tests.oracle.cuts import Change, as_lines, as_rows
from tests.oracle.test_time_oracle import (
    DELAY,
    FORMS,
    GROUPED,
    SESSIONS,
    START,
    Model,
    SessionModel,
    changes_of,
    kept,
    running,
)
from tests.seeds import drawn, seeds

KINDS = {"tumble": 200, "hop": 160, "panes": 30, "cumulate": 160}
"""Forms of windows, each with the number of changes that fall into some hundred of them."""

SQL = GROUPED.replace("window_start, C", "window_start, window_end, C")
HOUR = timedelta(hours=1)
FEW = 7
"""Roughly how many rows or groups one batch releases here."""


def groups_of(model: Model, until: datetime | None = None) -> Counter[tuple[Any, ...]]:
    """Return the result of `SQL` over the accepted rows, for the windows that end by then."""
    counts, sums = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for (_, k, v, _, begin, end), there in model.accepted["a"].items():
        if there and (until is None or end <= until):
            counts[k, begin, end] += there
            sums[k, begin, end] += v * there
    return Counter((*group, n, sums[group]) for group, n in counts.items() if n)


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("windows", KINDS)
def test_state_is_flat_however_many_windows_there_were(tmp_path: Path, windows: str, emit: str) -> None:
    """After a thousand rows, few of which share a window, state is as large as after two hundred."""
    sql, model, dice = SQL.format(a=FORMS[windows].format("a")), Model(windows), random.Random(7)
    query = running(tmp_path, "append", sql, f"mode: retract, emit: {emit}")
    entries, sizes = [], []
    for first in range(0, 1000, 40):
        late = (timedelta(milliseconds=dice.randrange(int(DELAY.total_seconds() * 1000))) for _ in range(40))
        times = (START + timedelta(seconds=20 * (first + number)) - each for number, each in enumerate(late))
        changes: list[Change] = [
            ("a", 1, (first + number, dice.randint(1, 3), 1, ts)) for number, ts in enumerate(times)
        ]
        query.batch(0, *as_lines(changes))
        model.batch(changes, ["a"])
        if not first % 200:
            query.restart()
        entries.append(sum(size.rows for size in query.engine.state.values()))
        sizes.append(sum(map(_bytes, dict(query.engine._state.items()).values())))
    assert as_rows(query) == groups_of(model, model.watermark(["a"]) if emit == "final" else None)
    assert len(query.view) > 1000 - 40
    for told in (entries, sizes):
        assert max(told[5:]) < 1.2 * max(told[:5]), told


def _bytes(store: MemoryStore) -> int:
    blobs = (store.get(name) for name in store)
    return sum(blob.size for blob in blobs if blob is not None)


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("windows", KINDS)
def test_windows_that_end_at_once_go_out_batch_by_batch(
    tmp_path: Path, windows: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one row passes all windows, each batch releases a few, each once, despite restarts and late rows."""
    monkeypatch.setattr(delay_until_final, "AT_ONCE", FEW)
    for dice in drawn(f"{windows} {mode}", seeds()):
        sql, model = SQL.format(a=FORMS[windows].format("a")), Model(windows, delay=HOUR)
        query = running(tmp_path, mode, sql, "mode: retract, emit: final", "delay: 1h")
        changes = [each for each in changes_of(dice, mode, KINDS[windows]) if each[0] == "a"]
        ends = START + timedelta(days=1)
        passing: Change = ("a", 1, (1000, 1, 1, ends))
        late: list[Change] = [("a", 1, (1001 + id_, id_ % 3, 5, row[3])) for id_, (_, _, row) in enumerate(changes[:9])]
        later: Change = ("a", 1, (2000, 2, 1, ends + timedelta(seconds=2)))
        batches = [changes, [passing], *([each] for each in late[:2]), [*late[2:], later]]
        came = 0
        for batch in batches:
            query.batch(0, *as_lines(batch))
            model.batch(batch, ["a"])
            query.restart()
        expected = groups_of(model, model.watermark(["a"]))
        assert len(expected) > 6 * FEW, "there are many more than go in one batch"
        assert sum(query.view.values()) <= 2 * FEW * len(batches)
        while query.view.total() < expected.total():
            before = as_rows(query)
            query.batch(0)
            query.restart()
            new = as_rows(query) - before
            came += 1
            assert not before - as_rows(query), "what is out stays"
            assert 0 < new.total() < 2 * FEW
            assert not before or max(row[2] for row in before) <= min(row[2] for row in new), "the earlier ones first"
        assert as_rows(query) == expected
        assert came > 1
        query.batch(0)
        assert as_rows(query) == expected, "no more goes"
        query.end()
        assert as_rows(query) == groups_of(model)


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
def test_sessions_that_end_at_once_are_let_go_of_batch_by_batch(
    tmp_path: Path, mode: str, emit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch evicts a few ended sessions until none is left; the result is always right, with restarts."""
    monkeypatch.setattr(timer_queue, "_AT_ONCE", FEW)
    monkeypatch.setattr(delay_until_final, "AT_ONCE", FEW)
    for dice in drawn(f"{mode} {emit}", seeds()):
        query = running(tmp_path, mode, SESSIONS["flink"], f"mode: retract, emit: {emit}", "delay: 1h")
        model = SessionModel(delay=HOUR)
        changes = [each for each in changes_of(dice, mode, 250) if each[0] == "a"]
        later: list[list[Change]] = [
            [("a", 1, (1000 + day, 1, day, START + timedelta(days=day)))] for day in range(1, 25)
        ]
        there = []
        for batch in [changes, *later]:
            query.batch(0, *as_lines(batch))
            query.restart()
            model.batch(batch)
            there.append(kept(query))
            if emit == "changes":
                assert as_rows(query) == model.result(final=False)
            else:
                assert not as_rows(query) - model.result(final=True)
        groups = [sum(count for name, count in each.items() if name.endswith(".groups")) for each in there]
        assert groups[0] > 4 * FEW, "there are many more than go in one batch"
        assert all(before - after < 2 * FEW for before, after in itertools.pairwise(groups)), groups
        assert max(there[-1].values()) <= FEW, there[-1]
        assert as_rows(query) == model.result(final=emit == "final")
        query.end()
        assert as_rows(query) == model.result(final=False)
