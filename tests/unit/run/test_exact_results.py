"""Results of a job's Python functions: only values that the declared type represents exactly are accepted."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.type import Type
from rowkind.service.python.calling import checked
from rowkind.service.python.exact import MisfitError

_NOON = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
_TAKEN: list[tuple[str, Any]] = [
    ("INT", [1, 2.0, np.int64(3), None]),
    ("BIGINT", np.array([2**62])),
    ("FLOAT", [0.1, 1, float("nan"), float("inf")]),
    ("DOUBLE", [0.1, 1, np.float32(0.5)]),
    ("DECIMAL(10,2)", [Decimal("1.5"), 7, None]),
    ("DECIMAL(10,2)", pa.array([12.34, 0.5])),
    ("STRING", ["é", None]),
    ("BINARY", [b"x", bytearray(b"y")]),
    ("BOOLEAN", [True, np.bool_(False)]),
    ("DATE", [date(2026, 1, 31), datetime(2026, 1, 31), np.datetime64("12000-01-01")]),  # noqa: DTZ001 -- no time
    ("TIME(3)", [time(12, 30)]),
    ("TIMESTAMP(6)", [_NOON, _NOON.replace(tzinfo=None), np.datetime64("12000-01-01T00:00:00", "us"), 5]),
    ("TIMESTAMP(3)", [_NOON.replace(microsecond=5000)]),
    ("ARRAY<INT>", [[1, None], [2.0], []]),
    ("STRUCT<a: INT, b: STRING>", [{"a": 1}, {"a": 2.0, "b": "x"}, None]),
    ("MAP<STRING, INT>", [{"a": 1}, [("b", 2.0)], {}]),
    ("INT", pa.array([1.0, None])),
]
_REFUSED: list[tuple[str, Any]] = [
    ("INT", [1.5]),
    ("INT", [2**31]),
    ("INT", [True]),
    ("INT", ["1"]),
    ("INT", np.array([1.5])),
    ("INT", np.array([1.5], object)),
    ("INT", pa.array([1.5])),
    ("INT", pa.array([2**40])),
    ("BIGINT", [0.1]),
    ("BIGINT", [2**63]),
    ("BIGINT", pa.array([2**63], pa.uint64())),
    ("FLOAT", [1e300]),
    ("FLOAT", np.array([-1e300])),
    ("DOUBLE", [2**53 + 1]),
    ("DECIMAL(10,2)", [1.5]),
    ("DECIMAL(10,2)", [Decimal("1.005")]),
    ("DECIMAL(10,2)", [10**9]),
    ("DECIMAL(10,2)", pa.array([1.005])),
    ("STRING", [1]),
    ("STRING", "ab"),
    ("BOOLEAN", [1]),
    ("BOOLEAN", pa.array([1])),
    ("DATE", [_NOON]),
    ("TIME(3)", [time(12, 0, 0, 5)]),
    ("TIMESTAMP(3)", [_NOON]),
    ("TIMESTAMP(6)", [date(2026, 1, 31)]),
    ("TIMESTAMP(6)", pa.array([1], pa.timestamp("ns"))),
    ("ARRAY<INT>", [[1.5]]),
    ("ARRAY<INT>", pa.array([[1.5]])),
    ("ARRAY<DECIMAL(10,2)>", pa.array([[1.005]])),
    ("STRUCT<a: INT>", [{"a": 1, "b": 2}]),
    ("STRUCT<a: INT>", [{"a": 0.5}]),
    ("STRUCT<a: INT>", pa.array([{"a": 1, "b": 2}])),
    ("STRUCT<a: DATE>", [{"a": _NOON}]),
    ("MAP<STRING, INT>", [{"a": 0.5}]),
    ("MAP<STRING, ARRAY<INT>>", [{"a": [0.5]}]),
    ("INT", {1: 2}),
]


@pytest.mark.parametrize(("type_", "given"), _TAKEN)
def test_values_of_the_type_are_taken(type_: str, given: Any) -> None:
    """Values of the type are accepted, also as another numeric type if they are equal."""
    found = checked(given, Type.of(type_), len(given))

    assert found.type == Type.of(type_).arrow
    assert len(found) == len(given)


@pytest.mark.parametrize(("type_", "given"), _REFUSED)
def test_a_value_that_the_type_does_not_have_exactly_is_a_misfit(type_: str, given: Any) -> None:
    """Values that would be truncated, rounded or dropped are refused."""
    with pytest.raises(MisfitError, match="which is not an array of"):
        checked(given, Type.of(type_), len(given))
