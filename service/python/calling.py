"""How a function of the job's is called: what it is given, and what is made sure of what it gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from rowkind.avro.schema import Type
from rowkind.service.python.code import describe
from rowkind.service.python.function import PythonFunction


class Caller:
    """Calls a function for the columns of some rows, and holds what it gives against what the job says.

    What is wrong with the function, rather than with a row, is kept as `fatal.error` of the thread, because DuckDB
    hands on no more of an exception than its text.
    """

    fatal = threading.local()

    def __init__(self, function: PythonFunction) -> None:
        self._function = function
        self._call = function.loaded()

    def __call__(self, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The values for these columns. Raises ValueError with one line."""
        of = self._function
        given = [one_array(each).cast(type_.arrow) for each, type_ in zip(columns, of.arguments, strict=True)]
        length = len(given[0])
        if of.called_on_null or not any(each.null_count for each in given):
            return self._checked(given, length)
        there = np.logical_and.reduce([each.is_valid().to_numpy(zero_copy_only=False) for each in given])
        found = self._checked([each.filter(pa.array(there)) for each in given], int(there.sum()))
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _checked(self, columns: Sequence[pa.Array], length: int) -> pa.Array:
        wanted = self._function.result
        if not length:
            return pa.array([], wanted.arrow)
        try:
            found = self._call(*columns)
        except Exception as error:  # noqa: BLE001 -- whatever the function does
            raise ValueError(f"{self._function.name}: {describe(error, self._function.code.place)}") from None
        try:
            return checked(found, wanted, length)
        except MisfitError as error:
            of = self._function
            self.fatal.error = f"function {of.name} ({of.module}:{of.attribute}) gave {error}"
            raise ValueError(str(error)) from None
        except ValueError as error:
            raise ValueError(f"{self._function.name} gave {error}") from None


class MisfitError(ValueError):
    """What a function gave is not what the job says that it gives, whatever the rows are."""


def checked(found: Any, wanted: Type, length: int) -> pa.Array:
    """What a function gave, as `length` values of a type. Raises MisfitError, ValueError for a value that is none."""
    if isinstance(found, pa.ChunkedArray):
        found = one_array(found)
    if not isinstance(found, pa.Array):
        try:
            found = pa.array(found, wanted.arrow)
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise MisfitError(f"a {type(found).__name__} which is no array of {wanted.sql}: {reason}") from None
    if len(found) != length:
        raise MisfitError(f"{len(found)} values for {length} rows")
    if found.type != wanted.arrow:
        if not _fits(found.type, wanted.arrow):
            raise MisfitError(f"an array of {found.type}, but the job says {wanted.sql}, which is {wanted.arrow}")
        try:
            found = found.cast(wanted.arrow)
        except pa.ArrowException as error:
            raise ValueError(f"no {wanted.sql}: {' '.join(str(error).split())}") from None
    if not wanted.nullable and found.null_count:
        raise ValueError(f"NULL, but the job says {wanted.sql} NOT NULL")
    return found


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (types.is_integer, types.is_floating, types.is_decimal),
    (types.is_string, types.is_large_string, types.is_string_view),
    (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    (types.is_timestamp,),
    (types.is_date,),
    (types.is_time,),
    (types.is_list, types.is_large_list, types.is_fixed_size_list),
    (types.is_struct,),
    (types.is_map,),
)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may stand for those of the other, where they can be cast."""
    if types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    return any(any(is_(found) for is_ in kind) and any(is_(wanted) for is_ in kind) for kind in _KINDS)
