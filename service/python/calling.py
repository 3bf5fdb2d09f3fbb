"""Call a job's Python function: prepare its arguments and check its result."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro.schema import Type
from rowkind.service.python.code import describe
from rowkind.service.python.exact import MisfitError, exact_cast, exact_values
from rowkind.service.python.function import PythonFunction


class Caller:
    """A callable that runs a function on the columns of some rows, and checks the result against the job's declaration.

    An error that is caused by the function itself, and not by a row, is stored in the thread's `fatal.error`, because
    DuckDB keeps only the text of an exception.
    """

    fatal = threading.local()

    def __init__(self, function: PythonFunction) -> None:
        self._function = function
        self._call = function.loaded()

    def __call__(self, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the function's results for these columns. Raises ValueError with a one-line message."""
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
            self.fatal.error = f"function {of.name} ({of.module}:{of.attribute}) returned {error}"
            raise ValueError(str(error)) from None
        except ValueError as error:
            raise ValueError(f"{self._function.name} returned {error}") from None


def checked(found: Any, wanted: Type, length: int) -> pa.Array:
    """Convert a function's result to an array of `length` values of type `wanted`.

    Raises MisfitError if the result does not match the type or length, and ValueError for a NULL that is not allowed.
    """
    try:
        column = exact_cast(_column(found, wanted), wanted.arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise MisfitError(
            f"a value of type {type(found).__name__}, which is not an array of {wanted.sql}: {reason}"
        ) from None
    if len(column) != length:
        raise MisfitError(f"an array of length {len(column)} instead of {length}")
    if not wanted.nullable and column.null_count:
        raise ValueError(f"NULL, but the job declares {wanted.sql} NOT NULL")
    return column


def _column(found: Any, wanted: Type) -> pa.Array:
    """Convert a function's result to an Arrow array. A typed result, such as a NumPy array, keeps its type."""
    if isinstance(found, pa.Array | pa.ChunkedArray):
        return one_array(found)
    if isinstance(found, str | bytes | Mapping):
        raise MisfitError("it is a single value")
    if getattr(found, "dtype", None) not in (None, np.dtype(object)):
        return one_array(pa.array(found))
    return exact_values(list(found), wanted.arrow)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one contiguous array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
