"""Dates and times as text, in every year that a column can store."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.decode import BOUNDED_TIMES
from rowkind.avro.json_rows import check_row, decode, encode, pack, parser
from rowkind.avro.python_values import from_python, to_python
from rowkind.avro.schema import Record
from rowkind.avro.text_values import ValueProblem
from rowkind.avro.type import Type

SEED = 5
_UNITS = {"TIMESTAMP(3)": 10**3, "TIMESTAMP(6)": 10**6, "TIMESTAMP(9)": 10**9}
_TYPES = [*_UNITS, *(each.replace("TIMESTAMP", "TIMESTAMP_NTZ") for each in _UNITS), "DATE"]


def _numbers(type_: str) -> list[int]:
    print(f"seed {SEED}")
    dice, bits = random.Random(SEED), 31 if type_ == "DATE" else 63
    per_day = 1 if type_ == "DATE" else 86_400 * _UNITS[type_.replace("_NTZ", "")]
    years = [days * per_day + less for days in (-719_163, -719_162, -719_528, 2_932_896, 2_932_897) for less in (0, -1)]
    edges = [0, 1, -1, 2**bits - 1, -(2**bits), 253_402_300_799_999_999, -62_135_596_800_000_001]
    drawn = [dice.randrange(-(2 ** dice.randrange(8, bits)), 2 ** dice.randrange(8, bits)) for _ in range(300)]
    least, most = BOUNDED_TIMES.get(Type.of(type_).logical or "", (-(2**bits), 2**bits - 1))
    return [each for each in edges + years + drawn if least <= each <= most]


@pytest.mark.parametrize("type_", _TYPES)
def test_every_time_comes_back_from_its_text(type_: str) -> None:
    """A row survives printing as JSON and parsing, both row by row and as a column."""
    record = Record.of({"x": type_, "a": f"ARRAY<{type_}>"})
    numbers = [None, *_numbers(type_)]
    plain = pa.array(numbers, pa.int32() if type_ == "DATE" else pa.int64())
    column = plain.cast(record.type("x").arrow)
    nested = pa.array([[each, None] for each in column], record.type("a").arrow)
    packed = encode(record, [{"x": a, "a": b} for a, b in zip(plain.to_pylist(), nested, strict=True)])

    shown = [json.loads(json.dumps(row)) for row in decode(record, packed)]
    one_by_one = encode(record, [check_row(record, row) for row in shown])
    columns, problems = pack(record, [parser(record)(json.dumps(row).encode()) for row in shown])

    assert one_by_one.equals(packed)
    assert not problems
    assert columns.equals(packed)
    assert all(row["a"] == [row["x"], None] for row in shown)


@pytest.mark.parametrize("type_", _TYPES)
def test_every_time_has_a_value_in_python_or_numpy(type_: str) -> None:
    """A time beyond Python's dates is a `numpy.datetime64`, and all values convert back to the same column."""
    arrow = Type.of(type_).arrow
    if type_.endswith("(9)"):
        pytest.skip("Python has no nanoseconds without pandas")
    # NumPy reads the least number as NaT.
    numbers = [each for each in _numbers(type_) if each != -(2**63)]
    column = pa.array(numbers, pa.int32() if type_ == "DATE" else pa.int64()).cast(arrow)

    values = to_python(column)

    assert from_python(values, arrow).equals(column)
    assert any(isinstance(each, np.datetime64) for each in values)
    assert to_python(pa.array([[each] for each in column], pa.list_(arrow))) == [[each] for each in values]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("TIMESTAMP(6)", "+294247-01-10T04:00:54.775808Z"),
        ("TIMESTAMP(3)", "+300000-01-01T00:00:00Z"),
        ("TIMESTAMP(9)", "2263-01-01T00:00:00Z"),
        ("DATE", "+5881580-07-12"),
        ("DATE", "10000-01-01"),
        ("DATE", "-0001-02-29"),
        ("TIMESTAMP(6)", "2026-01-01T24:00:00Z"),
        ("TIMESTAMP_NTZ(6)", "+10000-01-01T00:00:00Z"),
    ],
)
def test_a_time_that_a_column_cannot_hold_is_no_value(type_: str, text: str) -> None:
    """A time out of the column's range is refused with the column's name and never changed to another time."""
    with pytest.raises(ValueProblem, match=r"x: "):
        check_row(Record.of({"x": type_}), {"x": text})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (np.datetime64("10000-01-01T00:00:00.000001"), "+10000-01-01T00:00:00.000001Z"),
        (np.datetime64("2300-01-01T00:00:00.123457"), "2300-01-01T00:00:00.123457Z"),
        ("2300-01-01T00:00:00.123457", "2300-01-01T00:00:00.123457Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00Z"),
    ],
)
def test_times_of_numpy_and_numbers_keep_their_microseconds(given: Any, shown: str) -> None:
    """A time in any year is stored with its microseconds."""
    record = Record.of({"x": "TIMESTAMP(6)"})

    assert decode(record, encode(record, [check_row(record, {"x": given})])) == [{"x": shown}]


def test_json_goes_by_the_type_of_a_column() -> None:
    """An empty nested map is printed as an object, and an array of maps as an array."""
    record = Record.of(
        {"m": "MAP<STRING, MAP<STRING, INT>>", "a": "ARRAY<MAP<STRING, INT>>", "s": "STRUCT<m: MAP<STRING, DATE>>"}
    )
    rows = [
        {"m": {}, "a": [], "s": {"m": {}}},
        {"m": {"x": {}}, "a": [{}, {"y": 1}], "s": None},
        {"m": None, "a": [None, {}], "s": {"m": {"d": "+10000-01-01"}}},
    ]

    assert decode(record, encode(record, [check_row(record, row) for row in rows])) == rows
