"""Expiry against its definition: after every batch the output equals the rows of the input that have not expired.

`NaiveSide` defines which rows are alive, one row at a time. Rows are refreshed, replaced, and retracted before and
after they expire. Some batches have no rows, some follow a long pause. The number of rows that may expire in one batch
can be limited.
"""

from __future__ import annotations

import functools
import random
from collections import Counter

import numpy as np
import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.join.input import Side
from rowkind.operators.normalize.expiry import Expiry
from tests import changelogs
from tests.changelogs import Change, Row
from tests.oracle.inputs import Batches, Input, random_batches, with_refreshes
from tests.oracle.naive_join import NaiveSide, Steps
from tests.oracle.trials import Work, changes_differ, finding, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

TTL = 3
INPUTS = [
    Input("one row per key", by_seq=True),
    Input("one row per key", by_seq=False),
    Input("multiset", by_seq=False),
    Input("multiset", by_seq=True),
]


@pytest.mark.parametrize("of", INPUTS, ids=str)
def test_each_batch_emits_what_changes_among_the_rows_alive(of: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch emits the difference between the rows before and after it, and refreshes of rewritten rows."""
    for trial in trials(f"expiry, {of}", seeds(25), monkeypatch):
        hashed = trial.generator.choice(changelogs.HASHES)
        batches = with_refreshes(random_batches([of], trial.seed, batches=12), trial.seed)
        trial.check(functools.partial(_difference, of, hashed), batches)


@finding
def _difference(of: Input, hashed: changelogs.Hash, batches: Batches) -> str | None:
    """Return how the output is wrong on these batches, whose times depend on their numbers; None if it is right."""
    work, naive = Work(Expiry(Side(of.layout, TTL, of.by_seq), refreshes=True)), NaiveSide(of, TTL)
    for now, batch in timed(batches):
        before = naive.stored
        naive.expire(now)
        unmatched = naive.apply(batch, now)
        steps = Steps.between(before, naive.stored, now)
        output = work.process(changelogs.packed(batch, [of.table], hashed), now)
        if wrong := changes_differ(work.number, output.emitted, steps):
            return wrong
        if output.expired != len(unmatched):
            return (
                f"batch {work.number}: {output.expired} retractions of expired rows are counted, not {len(unmatched)}"
            )
        dues = [one.written_at + TTL for one in naive.stored]
        if (output.due is None) != (not dues) or (output.due is not None and output.due > min(dues)):
            return f"batch {work.number}: says that {output.due} is due, of {dues}"
        work.restart()
    return None


@pytest.mark.parametrize("only_comes", [True, False])
def test_rows_that_only_come_go_in_their_time(only_comes: bool) -> None:
    """Rows of an append input expire on time, with or without stored rows, and in the end no state is left."""
    for number in seeds(10):
        generator = random.Random(f"arrivals {number}")
        work = Work(Expiry(Side("multiset", TTL), only_comes=only_comes))
        written: list[tuple[int, Row]] = []
        seq = 0
        for now in range(30):
            rows = [(generator.randint(0, 2), 0, 0) for _ in range(generator.choice([0, 0, 1, 5]) * (now < 25))]
            batch = [Change(0, RowKind.INSERT, row, seq := seq + 1) for row in rows]
            output = work.process(changelogs.packed(batch, [Input("multiset", by_seq=False).table]), now)
            written = [(at, row) for at, row in written if at + TTL > now] + [(now, row) for row in rows]
            assert work.view == Counter(row for _, row in written), f"arrivals {number}, {now}"
            assert output.due == (written[0][0] + TTL if written else None)
        assert not work.blobs


@pytest.mark.parametrize("only_comes", [True, False])
def test_after_a_pause_the_oldest_go_first(only_comes: bool) -> None:
    """Rows of one batch expire together; a due row that is still alive can be retracted, and is due at once."""
    work = Work(Expiry(Side("multiset", TTL), only_comes=only_comes, most=3))
    table = Input("multiset", by_seq=False).table

    def batch(now: int, *steps: tuple[RowKind, int]) -> list[int]:
        given = [Change(0, kind, (id_, 0, 0), 10 * now + id_) for kind, id_ in steps]
        output = work.process(changelogs.packed(given, [table]), now)
        nonlocal due, expired
        due, expired = output.due, output.expired
        signs = np.where(output.rows.kind == RowKind.DELETE, -1, 1).tolist()
        ids = [changelogs.unpack(each)[0] or 0 for each in output.rows.payload.to_pylist()]
        return [sign * id_ for sign, id_ in zip(signs, ids, strict=True)]

    due: int | None = None
    expired = 0
    for now in (1, 2, 3):
        batch(now, *((RowKind.INSERT, 2 * now + each) for each in (0, 1)))
    taken = [] if only_comes else [(RowKind.DELETE, 6)]
    assert sorted(batch(50, *taken)) == [*([-6] if taken else []), -5, -4, -3, -2]
    assert due == 3 + TTL
    assert sorted(batch(50, *taken)) == [-7, *([] if taken else [-6])]
    assert (expired, due) == (len(taken), None)


def test_a_ttl_may_be_made_longer_or_shorter() -> None:
    """Existing rows follow a new TTL, and a row that has expired does not return."""
    table = Input("one row per key", by_seq=True).table
    work = Work(Expiry(Side("one row per key", TTL)))

    def batch(ttl: int, now: int, *ids: int) -> list[int | None]:
        given = [Change(0, RowKind.INSERT, (id_, 0, 0), 10 * now + id_) for id_ in ids]
        work.operator = Expiry(Side("one row per key", ttl, by_seq=True))
        work.process(changelogs.packed(given, [table]), now)
        return sorted(row[0] or 0 for row in work.view)

    assert batch(3, 1, 1, 2) == [1, 2]
    assert batch(3, 3, 3) == [1, 2, 3]
    assert batch(3, 4) == [3]
    assert batch(100, 5) == [3]
    assert batch(100, 90, 1) == [1, 3]
    assert batch(2, 91) == [1]
    assert batch(2, 92) == []
    assert not work.blobs
