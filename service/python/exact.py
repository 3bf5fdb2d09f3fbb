"""Convert a function's result to a column of the declared type, or raise an error if a value would change.

Arrow alone would truncate 1.5 to an INT, drop the time of day from a DATE, and drop fields that a STRUCT does not have.
Values converted from a list are therefore compared with the original ones. A FLOAT or DOUBLE accepts any number that is
not too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from rowkind.avro.python_values import from_python, to_python


class MisfitError(ValueError):
    """A function's result does not match its declared type. The cause is the function, not a row."""


def exact_values(given: Sequence[Any], wanted: pa.DataType) -> pa.Array:
    """Convert Python, NumPy or Arrow values to a column. Raises MisfitError for a value that the type cannot hold."""
    values = [to_python(pa.array([each]))[0] if isinstance(each, pa.Scalar) else each for each in given]
    try:
        found = from_python(values, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise MisfitError(" ".join(str(error).split())) from None
    if not set(map(type, values)) <= _EXACT.get(wanted, frozenset()):
        for value, kept in zip(values, to_python(found), strict=True):
            if not _same(value, kept, wanted):
                raise MisfitError(f"{value!r} cannot be represented exactly")
    return found


_NONE = type(None)
_EXACT: Mapping[pa.DataType, frozenset[type]] = {
    pa.bool_(): frozenset({bool, _NONE}),
    pa.int32(): frozenset({int, _NONE}),
    pa.int64(): frozenset({int, _NONE}),
    pa.float64(): frozenset({float, int, _NONE}),
    pa.string(): frozenset({str, _NONE}),
    pa.binary(): frozenset({bytes, _NONE}),
}
"""The Python types whose values Arrow either converts exactly or refuses."""


def _same(given: Any, kept: Any, type_: pa.DataType) -> bool:
    if kept is None:
        return given is None or bool(given != given)  # noqa: PLR0124 -- NaN and NaT, which Arrow may take for NULL
    if types.is_list(type_):
        return len(given) == len(kept) and all(map(_same, given, kept, [type_.value_type] * len(kept)))
    if types.is_map(type_):
        pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
        return all(_same(value, inside, type_.item_type) for (_, value), (_, inside) in zip(pairs, kept, strict=True))
    if types.is_struct(type_):
        fields = dict(given)
        return fields.keys() <= kept.keys() and all(
            _same(fields.get(field.name), kept[field.name], field.type) for field in type_
        )
    if types.is_floating(type_):
        return bool(math.isfinite(kept) or not math.isfinite(given))
    if types.is_timestamp(type_) and isinstance(given, datetime) and given.tzinfo is None:
        given = given.replace(tzinfo=UTC if type_.tz else None)
    if types.is_date(type_) and isinstance(given, datetime):
        return given.time() == time() and given.date() == kept
    if types.is_temporal(type_) and isinstance(given, int | np.integer):
        # An integer counts units of the type.
        return True
    return bool(given == kept)


def exact_cast(found: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast a column to another type of the same kind. Raises MisfitError for a value that the type cannot hold."""
    if found.type == wanted:
        return found
    if not _fits(found.type, wanted):
        raise MisfitError(f"it is {found.type}")
    try:
        cast = found.cast(wanted)
        back = cast.cast(found.type) if _rounds(found.type, wanted) else found
    except pa.ArrowException as error:
        raise MisfitError(" ".join(str(error).split())) from None
    if not back.equals(found) or (wanted == pa.float32() and pc.any(_too_large(found, cast)).as_py()):
        raise MisfitError("it has values that the type cannot represent exactly")
    return cast


def _too_large(found: pa.Array, cast: pa.Array) -> pa.Array:
    return pc.and_not(pc.is_inf(cast), pc.is_inf(found.cast(pa.float64())))


def _rounds(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast converts floating-point numbers, nested ones included, to decimals. Arrow rounds them."""
    if types.is_nested(found) and types.is_nested(wanted) and found.num_fields == wanted.num_fields:
        return any(_rounds(found.field(n).type, wanted.field(n).type) for n in range(found.num_fields))
    return bool(types.is_floating(found) and types.is_decimal(wanted))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (types.is_integer, types.is_floating, types.is_decimal),
    (types.is_boolean,),
    (types.is_string, types.is_large_string, types.is_string_view),
    (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    (types.is_timestamp,),
    (types.is_date,),
    (types.is_time,),
    (types.is_list, types.is_large_list, types.is_fixed_size_list),
    (types.is_map,),
)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether two types are of the same kind, so that a value may be cast from `found` to `wanted`."""
    if types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    if types.is_struct(found) and types.is_struct(wanted):
        return {field.name for field in found} == {field.name for field in wanted} and all(
            _fits(field.type, wanted.field(field.name).type) for field in found
        )
    if not any(any(is_(found) for is_ in kind) and any(is_(wanted) for is_ in kind) for kind in _KINDS):
        return False
    if types.is_map(found):
        return bool(types.is_map(wanted)) and _fits(found.item_type, wanted.item_type)
    return bool(not types.is_nested(found) or _fits(found.value_type, wanted.value_type))
