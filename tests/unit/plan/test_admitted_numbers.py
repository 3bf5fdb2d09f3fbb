"""The row numbers that conditions admit."""

from __future__ import annotations

import math

import pytest
from sqlglot import exp, parse_one

from rowkind.service.plan.traits.row_number_bounds import Ranges, admitted, row_bound, told_apart

MANY = math.inf


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("n <= 3", ((1, 3),)),
        ("3 > n", ((1, 2),)),
        ("n < 2.5", ((1, 2),)),
        ("n >= 2.5", ((3, MANY),)),
        ("n = 2", ((2, 2),)),
        ("n = 2.5", ()),
        ("n <> 1", ((2, MANY),)),
        ("n <> 3", ((1, 2), (4, MANY))),
        ("n < 1", ()),
        ("n > -1", ((1, MANY),)),
        ("n BETWEEN 2 AND 1 + 2", ((2, 3),)),
        ("n IN (3, 1, 2, 7, 0)", ((1, 3), (7, 7))),
        ("NOT n IN (1, 3)", ((2, 2), (4, MANY))),
        ("n < 3 OR n = 3 OR n > 9", ((1, 3), (10, MANY))),
        ("n > 1 AND (n < 4 OR n = 6)", ((2, 3), (6, 6))),
        ("n <= CAST(3 AS BIGINT)", ((1, 3),)),
        ("n <= 7 / 2", None),
        ("n <= '3'", None),
        ("n <= c", None),
        ("n % 2 = 0", None),
        ("n <= 3 OR c", None),
        ("n <= 2147483647 + 1", None),
    ],
)
def test_the_numbers_that_a_condition_admits(sql: str, expected: Ranges | None) -> None:
    """The admitted row numbers are ranges from 1 on, or None if the condition depends on anything else."""
    assert admitted(_parsed(sql), "n") == expected


@pytest.mark.parametrize("sql", ["n < 4 OR n = 6", "NOT (n <> 2 AND n <= 5)", "n BETWEEN 2 AND 3 OR 8 <= n", "n <> 3"])
def test_admitted_numbers_are_those_for_which_the_condition_is_true(sql: str) -> None:
    """The admitted numbers are those for which Python evaluates the condition to true."""
    ranges = admitted(_parsed(sql), "n")
    assert ranges is not None
    python = sql.replace("BETWEEN 2 AND 3", "in (2, 3)").replace("<>", "!=").replace("NOT", "not")
    python = python.replace("OR", "or").replace("AND", "and").replace(" = ", " == ")
    for number in range(1, 12):
        assert any(low <= number <= high for low, high in ranges) == eval(python, {"n": number})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CASE WHEN n = 1 THEN 'a' WHEN n < 4 THEN c END", 3),
        ("CASE n WHEN 1 THEN 'a' WHEN 5 THEN 'b' END", 5),
        ("CASE n WHEN c THEN 'a' END", MANY),
        ("(n) >= 2 AND c > 100", 1),
        ("n <> 3", 3),
        ("n <= c OR n = 1", MANY),
        ("n + 1", MANY),
        ("n", MANY),
        ("c + 1", 0),
    ],
)
def test_the_largest_number_that_makes_a_difference(sql: str, expected: float) -> None:
    """All row numbers above the result give the same value; it is infinite if any number may matter."""
    assert told_apart(_parsed(sql), "n") == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("n <= c", "c"),
        ("c + 1 > n", "c + 1"),
        ("n = c", "c"),
        ("n BETWEEN 1 AND c", "c"),
        ("n >= c", None),
        ("n <> c", None),
        ("n <= m", None),
        ("n + 1 <= c", None),
        ("n <= c OR m", None),
    ],
)
def test_a_row_bounds_its_own_number(sql: str, expected: str | None) -> None:
    """A condition bounds the row number from above by the row's other columns."""
    found = row_bound(_parsed(sql), {"n", "m"})
    assert (None if found is None else found.sql()) == expected


def _parsed(sql: str) -> exp.Expr:
    return parse_one(sql)
