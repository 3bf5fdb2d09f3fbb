"""Integers and decimals without a common decimal type are compared exactly, as Python's decimals are."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.trying import folded, inserts

TYPES = {"a": "DECIMAL(38,9)", "b": "DECIMAL(38,8)", "c": "DECIMAL(38,38)", "d": "DECIMAL(38,0)", "e": "BIGINT"}
TABLES = {name: {"mode": "append", "columns": {"id": "INT", name: type_}} for name, type_ in TYPES.items()}
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"), ("a", "d")]
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Numbers = dict[int, Decimal | None]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_numbers_of_any_two_types_compare_as_they_are(left: str, right: str, tmp_path: Path) -> None:
    """All comparisons, IN, BETWEEN, CASE, NULLIF and DECODE give Python's result for every pair of random numbers."""
    rng = random.Random(left + right)
    of_left, of_right = numbers(rng, TYPES[left]), numbers(rng, TYPES[right])
    x, y = f"{left}.{left}", f"{right}.{right}"
    tests = {
        **{f"{x} {sign} {y}": compare for sign, compare in SIGNS.items()},
        f"{x} IN (7, {y})": lambda p, q: p in (7, q),
        f"{x} BETWEEN {y} AND 7": lambda p, q: q <= p <= 7,
        f"CASE {x} WHEN {y} THEN TRUE ELSE FALSE END": operator.eq,
        f"NULLIF({x}, {y}) IS NULL": operator.eq,
        f"DECODE({x}, {y}, TRUE, FALSE)": operator.eq,
    }
    columns = ", ".join(f"{test} AS t{number}" for number, test in enumerate(tests))
    sql = f"SELECT {left}.id AS i, {right}.id AS j, {x} <=> {y} AS same, {columns} FROM {left} CROSS JOIN {right}"

    rows = folded(tmp_path, sql, TABLES, changes(left, of_left) + changes(right, of_right), batch_rows=1000)

    assert len(rows) == len(of_left) * len(of_right)
    for row in rows:
        p, q = of_left[row["i"]], of_right[row["j"]]
        assert row["same"] == (p == q)
        for number, (test, compare) in enumerate(tests.items()):
            if p is not None and q is not None:
                assert row[f"t{number}"] == compare(p, q), (test, p, q)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_they_find_each_other_in_joins(left: str, right: str, tmp_path: Path) -> None:
    """Numbers of different types match in joins, IN and NOT IN, with SQL's rules for NULL."""
    rng = random.Random(right + left)
    of_left, of_right = numbers(rng, TYPES[left]), numbers(rng, TYPES[right])
    given = changes(left, of_left) + changes(right, of_right)
    equal = [(i, j) for i, p in of_left.items() for j, q in of_right.items() if p == q]
    x, y = f"{left}.{left}", f"{right}.{right}"

    def found(sql: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in folded(tmp_path, sql, TABLES, given, batch_rows=5))

    pairs = f"SELECT {left}.id AS i, {right}.id AS j FROM {left} JOIN {right} ON {x}"
    there = {(i,) for i, j in equal if of_left[i] is not None}
    assert found(f"{pairs} = {y}") == sorted((i, j) for i, j in equal if of_left[i] is not None)
    assert found(f"{pairs} <=> {y}") == sorted(equal)
    assert found(f"SELECT id FROM {left} WHERE {left} IN (SELECT {right} FROM {right})") == sorted(there)
    assert found(f"SELECT id FROM {left} WHERE {left} NOT IN (SELECT {right} FROM {right})") == []
    assert found(
        f"SELECT id FROM {left} WHERE {left} NOT IN (SELECT {right} FROM {right} WHERE {right} IS NOT NULL)"
    ) == sorted((i,) for i, p in of_left.items() if p is not None and (i,) not in there)


def test_a_text_is_read_as_a_decimal_of_most_digits(tmp_path: Path) -> None:
    """A CAST of a string literal to a decimal keeps all 38 digits."""
    digits = "0.12345678901234567890123456789012345678"
    sql = f"SELECT id FROM c WHERE c = CAST('{digits}' AS DECIMAL(38,38))"

    assert folded(tmp_path, sql, TABLES, inserts("c", [{"id": 1, "c": digits}, {"id": 2, "c": "0.1"}])) == [{"id": 1}]


def numbers(rng: random.Random, type_: str) -> Numbers:
    """Return numbers of a type by ID, with NULL: small ones, some equal to numbers of other types, and the largest."""
    precision, scale = (19, 0) if type_ == "BIGINT" else map(int, type_[8:-1].split(","))
    wide = Context(prec=80)
    small = [Decimal(each) for each in ("0", "-0.5", "0.5", "0.25", "3", "-3", "100", "0.00000001", "0.000000001")]
    most = Decimal(10 ** min(precision, 38) - 1 if type_ != "BIGINT" else 2**63 - 1).scaleb(-scale, wide)
    whole = Decimal(10) ** (precision - scale)
    known = [
        each for each in small if abs(each) < whole and each == each.quantize(Decimal(1).scaleb(-scale), context=wide)
    ]
    chosen: list[Decimal | None] = [*rng.sample(known, min(len(known), 6)), most, wide.minus(most), None]
    return dict(enumerate(chosen))


def changes(name: str, of: Numbers) -> list[Any]:
    """Return the numbers as rows of the table whose name is that of its column."""
    scale = 0 if TYPES[name] == "BIGINT" else int(TYPES[name][8:-1].split(",")[1])
    written: list[dict[str, Any]] = []
    for number, value in of.items():
        text = None if value is None else f"{value:.{scale}f}"
        written.append({"id": number, name: int(text) if text is not None and TYPES[name] == "BIGINT" else text})
    return inserts(name, written)
