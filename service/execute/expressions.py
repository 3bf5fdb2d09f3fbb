"""Scalar expressions over the columns of a batch, evaluated by DuckDB in one statement.

DuckDB runs in this process and reads Arrow columns in place. Each thread has one connection, which is created when
needed. The planner has checked and translated all expressions. If an expression still fails on a row (for example with
an overflow or a failed cast), `ExpressionError` is raised. The error does not name the row, but the caller can find the
row with `failing`.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.errors import RowkindError
from rowkind.operators.columns.changes import Indices, Mask
from rowkind.operators.errors import RowFailed
from rowkind.service.execute.job_functions import make_known, misfit
from rowkind.service.execute.kernels import register
from rowkind.service.execute.out_of_range_times import at_ends, far
from rowkind.service.physical.expression import Expression
from rowkind.service.python.errors import FunctionError

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    # This optimizer would compute a shared subexpression for every row, even if COALESCE needs it only for some rows.
    "SET disabled_optimizers = 'common_subexpressions'",
)


ADVICE = (
    "Fix the condition, or set `on_error: dead_letter` or `on_error: null` in the job: rows on which the condition "
    "fails then do not satisfy it"
)


class ExpressionError(RowkindError):
    """An expression failed on a row, for example with an overflow. Use a wider type, or exclude the row with a CASE."""


def evaluate(
    expressions: Sequence[Expression], columns: Mapping[str, pa.Array], length: int, *, nulls: bool = False
) -> dict[Expression, pa.Array]:
    """Return each expression's values in all `length` rows, in the Arrow type of the expression.

    If `nulls` is set and a nullable expression fails on a row, its value is NULL. Raises ExpressionError, which names
    the first expression that failed, or FunctionError if a job function does not match its declaration.
    """
    try:
        return _evaluate(expressions, columns, length)
    except ExpressionError:
        if len(set(expressions)) > 1:
            found: dict[Expression, pa.Array] = {}
            for each in expressions:
                found |= evaluate([each], columns, length, nulls=nulls)
            return found
        if nulls and expressions[0].type.nullable:
            return {expressions[0]: _or_null(expressions[0], columns, length)}
        raise


def failing(rows: Indices, check: Callable[[Indices], object]) -> Iterator[tuple[int, str]]:
    """Yield, in order, the rows on which `check` raises ExpressionError, each with the error's text."""
    try:
        check(rows)
    except ExpressionError as error:
        if len(rows) == 1:
            yield int(rows[0]), str(error)
        else:
            for half in np.array_split(rows, 2):
                yield from failing(half, check)


def row_failed(error: ExpressionError, count: int, check: Callable[[Indices], object]) -> RowFailed:
    """Return the error for an operator whose condition failed. It names the first of `count` rows to fail `check`."""
    row, reason = next(failing(np.arange(count), check), (-1, str(error)))
    return RowFailed(reason, row, advice=ADVICE)


def _or_null(expression: Expression, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
    """Return an expression's values, or NULL for rows on which the expression fails."""

    def values(rows: Indices) -> pa.Array:
        some = {name: column.take(pa.array(rows)) for name, column in columns.items()}
        return _evaluate([expression], some, len(rows))[expression]

    bad = np.zeros(length, np.bool_)
    bad[[row for row, _ in failing(np.arange(length), values)]] = True
    good = np.flatnonzero(~bad)
    place = np.zeros(length, np.int64)
    place[good] = np.arange(len(good))
    return values(good).take(pa.array(place, mask=bad))


def _evaluate(
    expressions: Sequence[Expression], columns: Mapping[str, pa.Array], length: int
) -> dict[Expression, pa.Array]:
    beyond = far(columns)
    if not beyond:
        return _computed(expressions, columns, length)
    found, uncertain = at_ends(lambda some: _computed(expressions, some, length), columns, beyond)
    if uncertain is None:
        return dict(found)
    raise ExpressionError(f"{uncertain.text}: {', '.join(beyond)} is out of range for time computations")


def _computed(
    expressions: Sequence[Expression], columns: Mapping[str, pa.Array], length: int
) -> dict[Expression, pa.Array]:
    distinct = list(dict.fromkeys(expressions))
    functions = tuple(dict.fromkeys(function for expression in distinct for function in expression.functions))
    table = pa.table(dict(columns) or {"": pa.nulls(length, pa.int8())})
    connection, known = _connection(os.getpid(), threading.get_ident())
    for function in functions:
        make_known(connection, known, function)
    connection.register("input", table)
    try:
        found = connection.sql(_statement(tuple(expression.sql for expression in distinct))).to_arrow_table()
    except _data_errors() as error:
        if functions and (wrong := misfit()) is not None:
            raise FunctionError(wrong) from None
        if isinstance(error, _fatal_errors()):
            # After an internal or fatal error DuckDB refuses all further work on this connection.
            _connection.cache_clear()
        reason = _reason(str(error))
        raise ExpressionError(f"{' or '.join(expression.text for expression in distinct)}: {reason}") from None
    finally:
        connection.unregister("input")
    assert found.num_rows == length, "an expression returns one value per row"
    try:
        return {
            expression: _one_array(column).cast(expression.type.arrow)
            for expression, column in zip(distinct, found.columns, strict=True)
        }
    except pa.ArrowInvalid as error:
        raise ExpressionError(f"{' or '.join(expression.text for expression in distinct)}: {error}") from None


def truth(values: pa.BooleanArray) -> Mask:
    """Return a mask of the rows in which a condition is TRUE, as opposed to FALSE or NULL."""
    mask: Mask = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask if mask.dtype == np.bool_ else mask.astype(np.bool_)


@lru_cache(maxsize=512)
def _statement(expressions: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(f'{sql} AS c{number}' for number, sql in enumerate(expressions))} FROM input"  # noqa: S608 -- the plan's own SQL


@lru_cache(maxsize=8)
def _connection(process: int, thread: int) -> tuple[Any, dict[str, str]]:  # noqa: ARG001 -- a fork has its own
    """Return a DuckDB connection, and the job functions that are registered with it."""
    import duckdb  # noqa: PLC0415 -- a job without expressions starts without it

    connection = duckdb.connect(config={"threads": 1})
    for setting in _SETTINGS:
        connection.execute(setting)
    register(connection)
    # DuckDB's bindings report every object that is still alive at interpreter exit as a leak.
    atexit.register(_connection.cache_clear)
    return connection, {}


def _reason(text: str) -> str:
    """Return the line of an error message that says why a value is invalid."""
    _, kernel, raised = text.partition("while executing the UDF: ")
    if kernel:
        # The class of the exception precedes its message.
        text = raised.partition(": ")[2]
    return text.splitlines()[0].removeprefix("Invalid Input Error: ")


def _data_errors() -> tuple[type[Exception], ...]:
    """Return DuckDB's exceptions for invalid values: failed casts, overflows, `error(…)` and failing kernels."""
    import duckdb  # noqa: PLC0415 -- as above

    return duckdb.DataError, duckdb.InvalidInputException, *_fatal_errors()


def _fatal_errors() -> tuple[type[Exception], ...]:
    import duckdb  # noqa: PLC0415 -- as above

    return duckdb.InternalException, duckdb.FatalException


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )
