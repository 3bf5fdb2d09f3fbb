"""Convert columns to Python values and back.

Times outside Python's years, 1 to 9999, become NumPy values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro.time_text import PER_SECOND, date_text, moment_text

_UNITS = {"ms": PER_SECOND["millis"], "us": PER_SECOND["micros"], "ns": PER_SECOND["nanos"]}


def to_python(column: pa.Array) -> list[Any]:
    """Return a column's values as Python values.

    Times that Python cannot represent become `numpy.datetime64` in UTC.
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return [_value(each) for each in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        type_ = scalar.type
    if pa.types.is_struct(type_):
        return {field.name: _value(scalar[field.name]) for field in type_}
    if pa.types.is_map(type_):
        return [(each["key"].as_py(), _value(each["value"])) for each in scalar.values]
    if pa.types.is_list(type_):
        return to_python(scalar.values)
    return np.datetime64(scalar.value, "D" if pa.types.is_date(type_) else type_.unit)


def from_python(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return a column of values, as `to_python` returns them. Raises ArrowException, TypeError or ValueError."""
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        unit = "D" if pa.types.is_date32(type_) else type_.unit
        values = [_number(each, unit) if isinstance(each, np.datetime64) else each for each in values]
    return pa.array(values, type_)


def _number(value: np.datetime64, unit: str) -> int | None:
    return None if np.isnat(value) else int(value.astype(f"datetime64[{unit}]").astype(np.int64))


def datetime64_text(value: np.datetime64) -> str | None:
    """Return a `datetime64` (a date or a timestamp) as ISO 8601 text without a zone, or None for NaT."""
    if np.isnat(value):
        return None
    unit = np.datetime_data(value)[0]
    if unit in ("Y", "M", "W", "D"):
        return date_text(int(value.astype("datetime64[D]").astype(np.int64)))
    if unit not in _UNITS:
        unit, value = "us", value.astype("datetime64[us]")
    return moment_text(int(value.astype(np.int64)), _UNITS[unit])
