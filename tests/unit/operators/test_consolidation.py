"""Consolidation compared with multisets: equal rows are left with the sum of their weights, on the latest rows."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from rowkind.operators.columns.changes import Int64s, Uint64s, binary
from rowkind.operators.columns.consolidation import net_in_groups, net_weights, spelled_out, summed
from rowkind.operators.columns.grouping import Groups, group, in_turn
from rowkind.operators.columns.hashing import hash64, sketch64

Signed = list[tuple[bytes, int]]
"""Rows with their weights, in the order of seq."""


def consolidated(rows: Signed, codes: Uint64s | None = None, seq: Int64s | None = None) -> Int64s:
    """Return the weights that are left; equal rows have equal codes."""
    values = binary(row for row, _ in rows)
    weight = np.array([each for _, each in rows], np.int64)
    arrival = np.arange(len(rows)) if seq is None else seq
    return net_weights(
        sketch64(values) if codes is None else codes, weight, lambda at: [values.take(at)], arrival.__getitem__
    )


def test_the_latest_rows_stay() -> None:
    """Of three insertions and one deletion of a row, the earliest insertion cancels."""
    assert consolidated([(b"a", 1), (b"b", -1), (b"a", 1), (b"a", -1), (b"a", 1)]).tolist() == [0, -1, 1, 0, 1]


def test_a_row_may_stay_in_part() -> None:
    """If weights are not 1, the sum is assigned from the latest row on, and a row may keep a part."""
    assert consolidated([(b"a", 2), (b"a", 3), (b"a", -1)]).tolist() == [1, 3, 0]
    assert consolidated([(b"a", -2), (b"a", 3), (b"a", -4)]).tolist() == [0, 0, -3]


def test_rows_of_one_sign_are_left_alone() -> None:
    """If equal rows all have the same sign, the same array of weights is returned."""
    weight = np.array([1, 1, -1])
    values = binary([b"a", b"a", b"b"])
    assert net_weights(sketch64(values), weight, lambda at: [values.take(at)], weight.__getitem__) is weight


def test_rows_of_weight_zero_say_nothing() -> None:
    """A row of weight zero keeps it and has no effect on other rows."""
    assert consolidated([(b"a", 0), (b"a", 1), (b"a", -1), (b"b", 0)]).tolist() == [0, 0, 0, 0]
    assert consolidated([(b"a", 0), (b"a", 1), (b"b", -1)]).tolist() == [0, 1, -1]


def test_what_goes_is_spelled_out_before_what_comes() -> None:
    """Retractions are repeated first, then insertions, each as often as its weight, in their order."""
    assert spelled_out(np.array([2, -1, 0, 1, -2])).tolist() == [1, 4, 4, 0, 0, 3]
    assert spelled_out(np.array([], np.int64)).tolist() == []


def test_a_group_is_summed_up_in_its_first_row() -> None:
    """The sum of a group's weights is assigned to its first row, and the others get zero."""
    values = binary([b"b", b"a", b"b", b"a", b"b"])
    groups = group(hash64(values), [values])
    assert summed(groups, np.array([1, 1, 1, -1, 2])).tolist() == [4, 0, 0, 0, 0]


@pytest.mark.parametrize("codes", ["sketch", "few", "one"])
@pytest.mark.parametrize("seed", range(20))
def test_any_rows_amount_to_the_same_multiset(seed: int, codes: str) -> None:
    """For random rows and colliding codes, sums are kept, signs are not mixed, and the latest rows stay."""
    chance = random.Random(seed)
    rows = [(b"row %d" % chance.randrange(6), chance.choice([-2, -1, 0, 1, 1])) for _ in range(chance.randrange(1, 40))]
    seq = np.array(chance.sample(range(100), len(rows)))
    values = binary(row for row, _ in rows)
    code = {"sketch": sketch64(values), "few": hash64(values) % np.uint64(2), "one": np.zeros(len(rows), np.uint64)}
    left = consolidated(rows, code[codes], seq).tolist()

    def sums(weights: list[int]) -> Counter[bytes]:
        total: Counter[bytes] = Counter()
        for (row, _), weight in zip(rows, weights, strict=True):
            total[row] += weight
        return total

    assert sums(left) == sums([weight for _, weight in rows])
    for (row, weight), now in zip(rows, left, strict=True):
        assert abs(now) <= abs(weight)
        assert now * weight >= 0, row
    for row in {row for row, _ in rows}:
        of_row = [(int(seq[at]), rows[at][1], left[at]) for at in range(len(rows)) if rows[at][0] == row]
        assert len({now > 0 for *_, now in of_row if now}) <= 1
        staying = sorted(each for each in of_row if each[1] * sum(now for *_, now in of_row) > 0)
        kept = [abs(now) / abs(weight) for _, weight, now in staying]
        assert kept == sorted(kept), "a later row has gone before an earlier one"


@pytest.mark.parametrize("seed", range(20))
def test_rows_cancel_within_their_groups(seed: int) -> None:
    """Within groups of any size, rows cancel as they would with the group as one more column."""
    dice = np.random.default_rng(seed)
    count = int(dice.integers(1, 60))
    names = binary(b"%d" % each for each in dice.integers(0, int(dice.integers(1, 60)), count))
    groups, values = group(hash64(names), [names]), binary(b"%d" % each for each in dice.integers(0, 3, count))
    weight, seq = dice.choice([-1, 1], count), dice.permutation(count)
    both = binary(a + b"/" + b for a, b in zip(names.to_pylist(), values.to_pylist(), strict=True))
    expected = net_weights(sketch64(both), weight, lambda at: [both.take(at)], seq.__getitem__)
    assert net_in_groups(groups, values, weight, seq).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_of_a_group_stand_in_turn(seed: int) -> None:
    """All rows of a group are adjacent and sorted by both terms, and no row is missing."""
    dice = np.random.default_rng(seed)
    count = int(dice.integers(1, 60))
    numbers = dice.integers(0, int(dice.integers(1, 60)), count)
    ids = np.unique(numbers, return_inverse=True)[1]
    major, minor = dice.integers(0, 3, count), dice.choice([True, False], count)
    order = in_turn(Groups(ids, int(ids.max()) + 1), major, minor)
    assert sorted(order.tolist()) == list(range(count))
    for each in range(ids.max() + 1):
        at = np.flatnonzero(ids[order] == each)
        assert (np.diff(at) == 1).all(), "the rows of a group are adjacent"
        terms = [(int(major[row]), bool(minor[row])) for row in order[at]]
        assert terms == sorted(terms)
