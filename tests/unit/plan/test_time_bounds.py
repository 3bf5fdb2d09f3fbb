"""How far apart the times of a pair may be according to a join's condition."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from rowkind.service.physical.clocks import TimeBounds
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalUnion
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.traits.time_bounds import Stay, stays_of, time_bounds

MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE

CASES = [
    ("b BETWEEN a - INTERVAL '5' MINUTE AND a + INTERVAL '10' MINUTE", -5 * MINUTE, 10 * MINUTE),
    ("a BETWEEN b - INTERVAL '10' MINUTE AND b + INTERVAL '5' MINUTE", -5 * MINUTE, 10 * MINUTE),
    ("(a <= b) AND b < a + INTERVAL 1 HOUR", 0, 60 * MINUTE - 1),
    ("a - INTERVAL '1' MINUTE < b AND INTERVAL '1' MINUTE + a > b", -MINUTE + 1, MINUTE - 1),
    ("a = b - INTERVAL '1' DAY", DAY, DAY),
    ("a + INTERVAL '1' HOUR >= b + INTERVAL '1' MINUTE", None, 59 * MINUTE),
    ("b > a AND b > a + INTERVAL '1' MINUTE AND b <= a + INTERVAL '2' MINUTE", MINUTE + 1, 2 * MINUTE),
    ("b BETWEEN a - INTERVAL '1' MONTH AND a + INTERVAL '1' MONTH", -31 * DAY, 31 * DAY),
    ("b >= a + INTERVAL '1' MONTH", 28 * DAY, None),
    ("CAST(b AS DATE) = CAST(a AS DATE)", -DAY + 1, DAY - 1),
    ("b >= a - INTERVAL '1' DAY - INTERVAL '2' HOUR", -26 * 60 * MINUTE, None),
]


def joined(condition: str, kind: str = "inner") -> LogicalJoin:
    """Return a join of empty inputs with this condition."""
    nothing = LogicalInput(LogicalUnion((), exp.Null()))
    tree = parse_one(condition, dialect="spark")
    conjuncts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    return LogicalJoin(nothing, nothing, tuple(conjuncts), kind, exp.Null())  # type: ignore[arg-type]


@pytest.mark.parametrize(("condition", "earliest", "latest"), CASES)
def test_bounds_are_found_however_they_are_written(condition: str, earliest: int | None, latest: int | None) -> None:
    """Bounds are found in comparisons of either direction, with intervals on either side, in one or more conditions."""
    assert time_bounds(joined(condition), {"a"}, {"b"}) == (TimeBounds("a", "b", earliest, latest),)


@pytest.mark.parametrize(
    "condition", ["a <> b", "a < b OR a > b", "a <=> b", "a < c", "b > a + c", "GREATEST(a, b) > a"]
)
def test_other_conditions_bound_nothing(condition: str) -> None:
    """A condition that does not compare one time of each side sets no bounds."""
    assert time_bounds(joined(condition), {"a"}, {"b"}) == ()


def test_a_side_is_kept_for_who_counts_its_rows() -> None:
    """A side whose matches are counted for null-padding is kept until the rows that it matches are final."""
    bounds = TimeBounds("a", "b", -5, 10)
    assert stays_of(joined("a < b"), bounds, (0, 0)) == (Stay(10, 15, 15), Stay(5, 15, 15))
    assert stays_of(joined("a < b", "left"), bounds, (0, 0)) == (Stay(10, 15, 15), Stay(5, 15, 20))
    assert stays_of(joined("a < b", "full"), bounds, (0, 0)) == (Stay(10, 15, 25), Stay(5, 15, 20))
    assert stays_of(joined("a < b"), bounds, (2, 3)) == (Stay(13, 17, 17), Stay(7, 18, 18))


def test_a_row_that_is_on_time_is_not_late() -> None:
    """If the interval is before the row's own time, a row on time is not late, because its matches are still kept."""
    before = TimeBounds("a", "b", -10, -5)
    assert stays_of(joined("a < b"), before, (0, 0)) == (Stay(0, 5, 5), Stay(10, 10, 10))


def test_one_bound_lets_go_of_one_side() -> None:
    """With only an earliest bound, left rows are kept indefinitely, and right rows too if left rows are null-padded."""
    bounds = TimeBounds("a", "b", -5, None)
    assert stays_of(joined("a < b"), bounds, (0, 0)) == (Stay(0, None, None), Stay(5, 5, 5))
    assert stays_of(joined("a < b", "left"), bounds, (0, 0)) == (Stay(0, None, None), Stay(5, 5, None))
