"""Consolidation, against multisets: of equal rows only the sum of their weights is left, and the latest rows stay."""

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
    """The weights that are left; equal rows have equal codes."""
    values = binary(row for row, _ in rows)
    weight = np.array([each for _, each in rows], np.int64)
    arrival = np.arange(len(rows)) if seq is None else seq
    return net_weights(
        sketch64(values) if codes is None else codes, weight, lambda at: [values.take(at)], arrival.__getitem__
    )


def test_the_latest_rows_stay() -> None:
    """Of three that come and one that goes, the earliest has gone."""
    assert consolidated([(b"a", 1), (b"b", -1), (b"a", 1), (b"a", -1), (b"a", 1)]).tolist() == [0, -1, 1, 0, 1]


def test_a_row_may_stay_in_part() -> None:
    """Weights need not be 1: what is left of the sum is taken from the latest row on."""
    assert consolidated([(b"a", 2), (b"a", 3), (b"a", -1)]).tolist() == [1, 3, 0]
    assert consolidated([(b"a", -2), (b"a", 3), (b"a", -4)]).tolist() == [0, 0, -3]


def test_rows_of_one_sign_are_left_alone() -> None:
    """Equal rows that only come, or rows that only go, are handed back as they are, in the same array."""
    weight = np.array([1, 1, -1])
    values = binary([b"a", b"a", b"b"])
    assert net_weights(sketch64(values), weight, lambda at: [values.take(at)], weight.__getitem__) is weight


def test_rows_of_weight_zero_say_nothing() -> None:
    """Such a row neither cancels another nor keeps it from being cancelled, and keeps its weight."""
    assert consolidated([(b"a", 0), (b"a", 1), (b"a", -1), (b"b", 0)]).tolist() == [0, 0, 0, 0]
    assert consolidated([(b"a", 0), (b"a", 1), (b"b", -1)]).tolist() == [0, 1, -1]


def test_what_goes_is_spelled_out_before_what_comes() -> None:
    """Each as often as its weight says, in the order in which they stood; what has weight zero is not there."""
    assert spelled_out(np.array([2, -1, 0, 1, -2])).tolist() == [1, 4, 4, 0, 0, 3]
    assert spelled_out(np.array([], np.int64)).tolist() == []


def test_a_group_is_summed_up_in_its_first_row() -> None:
    """The others of the group have nothing left to say."""
    values = binary([b"b", b"a", b"b", b"a", b"b"])
    groups = group(hash64(values), [values])
    assert summed(groups, np.array([1, 1, 1, -1, 2])).tolist() == [4, 0, 0, 0, 0]


@pytest.mark.parametrize("codes", ["sketch", "few", "one"])
@pytest.mark.parametrize("seed", range(20))
def test_any_rows_amount_to_the_same_multiset(seed: int, codes: str) -> None:
    """Random rows, also under codes that unequal rows share: sums are right, signs do not mix, the latest stay."""
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
    """Of groups of any size what is left is that of rows with one more column, the group."""
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
    """Each group's rows are in the order of both terms, one after the other, and all rows are there."""
    dice = np.random.default_rng(seed)
    count = int(dice.integers(1, 60))
    numbers = dice.integers(0, int(dice.integers(1, 60)), count)
    ids = np.unique(numbers, return_inverse=True)[1]
    major, minor = dice.integers(0, 3, count), dice.choice([True, False], count)
    order = in_turn(Groups(ids, int(ids.max()) + 1), major, minor)
    assert sorted(order.tolist()) == list(range(count))
    for each in range(ids.max() + 1):
        at = np.flatnonzero(ids[order] == each)
        assert (np.diff(at) == 1).all(), "the rows of a group stand together"
        terms = [(int(major[row]), bool(minor[row])) for row in order[at]]
        assert terms == sorted(terms)
