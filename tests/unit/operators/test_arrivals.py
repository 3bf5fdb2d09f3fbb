"""The arrivals that retractions cancel."""

from __future__ import annotations

import numpy as np

from rowkind.operators.aggregate.arrivals import Arrivals, arrivals, arrived, settled
from rowkind.operators.columns.changes import binary


def of(*rows: tuple[int, int, str, int]) -> Arrivals:
    """Return arrivals from group, number, value and times."""
    values = arrivals(np.array([row[1] for row in rows], np.int64), binary([row[2].encode() for row in rows]))
    return Arrivals(np.array([row[0] for row in rows], np.int64), values, np.array([row[3] for row in rows], np.int64))


def rows(found: Arrivals) -> list[tuple[int, str, str, int]]:
    """Return the arrivals as tuples, sorted."""
    texts = zip(found.value.to_pylist(), arrived(found.value).to_pylist(), strict=True)
    names = [(each.hex()[:16], value.decode()) for each, value in texts]
    return sorted((int(group), *name, int(n)) for group, name, n in zip(found.group, names, found.times, strict=True))


def test_the_oldest_of_equal_values_goes_first() -> None:
    """A retraction cancels the equal value with the lowest number, of stored and new ones, even a negative one."""
    found = settled(of((0, 9, "a", -2), (0, 5, "a", 1)), of((0, 7, "a", 1), (0, -3, "a", 1)))
    assert rows(found) == rows(of((0, 5, "a", 1), (0, -3, "a", -1), (0, 5, "a", -1)))


def test_equal_arrivals_go_as_often_as_they_are_taken_back() -> None:
    """Rows that arrived with one change share a number, and each retraction cancels one of them."""
    found = settled(of((0, 9, "a", -3)), of((0, 1, "a", 2), (0, 2, "a", 2), (1, 0, "a", 5), (0, 0, "b", 5)))
    assert rows(found) == rows(of((0, 1, "a", -2), (0, 2, "a", -1)))


def test_what_finds_nothing_is_left_out() -> None:
    """A retraction without an equal value is dropped."""
    assert rows(settled(of((0, 9, "a", -1), (0, 8, "b", 1)), of((1, 1, "a", 1)))) == rows(of((0, 8, "b", 1)))
