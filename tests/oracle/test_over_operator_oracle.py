"""OVER against its definition: after every batch the output equals the definition over all rows of the folded input.

Half of the changes are repeated inserts, retractions and unmatched retractions, with many ties, strong and weak hashes,
and segments of a few rows. These tests detect wrong frames and starting values, results that are not retracted, output
that is not net, and retractions wrongly counted, or not counted, as unmatched.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.over.framing import Frame
from rowkind.operators.over.over import Over
from rowkind.operators.over.window_call import OverCall
from tests import changelogs
from tests.changelogs import Change, Row
from tests.oracle.inputs import Batches, random_batches
from tests.oracle.overs import Arrived, OverInput, call, over, spec
from tests.oracle.trials import Work, finding, trials
from tests.seeds import drawn, seeds

pytestmark = pytest.mark.sampled(8)

ALL = Frame("rows", None, 0)
PEERS = Frame("range", None, 0)


def calls_of(dice: random.Random) -> list[OverCall]:
    """Return some random calls over random frames."""

    def frame() -> Frame:
        if dice.random() < 0.4:
            return dice.choice([ALL, PEERS])
        edges: list[int | None] = sorted(dice.choice([-3, -2, -1, 0, 0, 1, 2]) for _ in range(2))
        if dice.random() < 0.3:
            edges[0] = None
        if dice.random() < 0.15:
            edges[1] = None
        return Frame(dice.choice(["rows", "range"]), *edges)

    found = []
    for _ in range(dice.randint(1, 3)):
        skips = dice.random() < 0.4
        match dice.randrange(6):
            case 5:
                nth = dice.randint(1, 4)
                function = dice.choice(["ntile", "percent_rank", "cume_dist", "lag"])
                frame_ = Frame("rows", None, -1 if function == "lag" else None)
                found.append(call(function, frame_, nth, default=dice.random() < 0.5, skips=function == "lag"))
            case 0:
                found.append(call(dice.choice(["row_number", "rank", "dense_rank"]), ALL))
            case 1:
                function = dice.choice(["lag", "lead"])
                nth = dice.randint(0, 3) * (1 if function == "lead" else -1)
                found.append(call(function, Frame("rows", nth, nth), default=dice.random() < 0.5))
            case 2:
                function = dice.choice(["first_value", "last_value", "nth_value"])
                nth = dice.randint(1, 3) if function == "nth_value" else 1
                found.append(call(function, frame(), nth, default=dice.random() < 0.3, skips=skips))
            case _:
                found.append(call(dice.choice(["count", "sum", "avg", "min", "max"]), frame()))
    return found


@pytest.mark.parametrize("by_seq", [True, False])
def test_the_results_are_those_of_the_definition_after_every_batch(
    by_seq: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives every row with its results."""
    for trial in trials(f"over, {by_seq}", seeds(60), monkeypatch):
        of = OverInput("multiset", by_seq=by_seq, hashed=trial.generator.choice(changelogs.HASHES))
        batches = random_batches([of], trial.seed, batches=10, changes=trial.generator.choice([3, 15]))
        calls = calls_of(trial.generator)
        trial.check(functools.partial(_difference, of, calls), batches, calls)


def test_long_partitions_are_read_in_pieces() -> None:
    """With short frames and changes far apart in a long partition, the rows in between keep the right results."""
    for dice in drawn("long", seeds(20)):
        of = OverInput("multiset", by_seq=True, hashed=dice.choice(changelogs.HASHES))
        calls = [call("sum", Frame("rows", -dice.randint(0, 3), 1)), call("lead", Frame("rows", 2, 2), 2)]
        calls += [call("max", Frame("range", -dice.randint(0, 9), dice.randint(0, 9)))]
        rows: list[Row] = [(at, at % 3 // 2, dice.randrange(100)) for at in range(150)]
        batches = [[Change(0, RowKind.INSERT, row, seq) for seq, row in enumerate(rows)]]
        for at in range(1, 8):
            gone = [rows.pop(dice.randrange(len(rows))) for _ in range(dice.randint(0, 6))]
            come: list[Row] = [(1000 * at + each, each % 3 // 2, dice.randrange(100)) for each in range(4)]
            rows += come
            kinds = [(RowKind.DELETE, row) for row in gone] + [(RowKind.INSERT, row) for row in come]
            batches.append([Change(0, kind, row, 1000 * at + seq) for seq, (kind, row) in enumerate(kinds)])
        assert _difference(of, calls, batches) is None


@finding
def _difference(of: OverInput, calls: Sequence[OverCall], batches: Batches) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    work = Work(Over(spec(calls, of)))
    rows: list[Arrived] = []
    for batch in batches:
        unmatched = _apply(of, rows, batch)
        if wrong := work.differs(work.process(of.columns(batch)), unmatched, over(rows, calls)):
            return wrong
    return None


def _apply(of: OverInput, rows: list[Arrived], batch: Sequence[Change]) -> int:
    """Apply a batch, and return the number of unmatched retractions.

    A retraction removes the equal row that arrived first.
    """
    unmatched = 0
    by_sign = (lambda each: (each.seq, each.sign)) if of.by_seq else (lambda each: (-each.sign, each.seq))
    for change in sorted(batch, key=by_sign):
        if change.sign > 0:
            rows.append((change.seq, change.row))
            continue
        equal = sorted(each for each in rows if each[1] == change.row)
        unmatched += not equal
        if equal:
            rows.remove(equal[0])
    return unmatched


@pytest.mark.parametrize("frame", [ALL, PEERS])
def test_what_expires_stays_in_what_rows_carry(frame: Frame) -> None:
    """A new row continues from the last row that has not expired, however many rows before that one have expired."""
    of = OverInput("multiset", by_seq=True)
    work = Work(Over(spec([call("sum", frame), call("row_number", ALL)], of, ttl_ms=5)))
    for seq, now in enumerate((0, 3, 6, 7, 20)):
        work.process(of.columns([Change(0, RowKind.INSERT, (0, 1, seq + 1), seq)]), now)
    assert {row[2]: row[3:] for row in work.view} == {1: (1, 1), 2: (3, 2), 3: (6, 3), 4: (10, 4), 5: (5, 1)}
