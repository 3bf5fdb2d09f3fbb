"""How a function of the job's is called: what it is given, and what is made sure of what it gives."""

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


def checked(found: Any, wanted: Type, length: int) -> pa.Array:
    """What a function gave, as `length` values of a type. Raises MisfitError, ValueError for a NULL that is none."""
    try:
        column = exact_cast(_column(found, wanted), wanted.arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise MisfitError(f"a {type(found).__name__} which is no array of {wanted.sql}: {reason}") from None
    if len(column) != length:
        raise MisfitError(f"{len(column)} values for {length} rows")
    if not wanted.nullable and column.null_count:
        raise ValueError(f"NULL, but the job says {wanted.sql} NOT NULL")
    return column


def _column(found: Any, wanted: Type) -> pa.Array:
    """What a function gave as Arrow has it. What has a type of its own keeps it here."""
    if isinstance(found, pa.Array | pa.ChunkedArray):
        return one_array(found)
    if isinstance(found, str | bytes | Mapping):
        raise MisfitError("it is one value")
    if getattr(found, "dtype", None) not in (None, np.dtype(object)):
        return one_array(pa.array(found))
    return exact_values(list(found), wanted.arrow)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
