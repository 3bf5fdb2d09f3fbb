"""The job's own functions in Python, made known to DuckDB when an expression calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rowkind.service.python.calling import Caller
from rowkind.service.python.function import PythonFunction


def make_known(connection: Any, known: dict[str, str], function: PythonFunction) -> None:
    """Let a connection know a function; `known` are those that it knows, with the digest of the code of each.

    Raises FunctionError.
    """
    Caller.fatal.error = None
    name = function.identity
    if known.get(name) == function.code.digest:
        return
    kernel = _with_parameters(Caller(function), len(function.arguments))
    if known.pop(name, None) is not None:
        connection.remove_function(name)
    connection.create_function(
        name,
        kernel,
        list(function.parameters),
        function.gives,
        type="arrow",
        null_handling="special",
        side_effects=not function.deterministic,
    )
    known[name] = function.code.digest


def misfit() -> str | None:
    """What is wrong with a function that has failed in this thread, None where it was a row's fault."""
    found: str | None = getattr(Caller.fatal, "error", None)
    Caller.fatal.error = None
    return found


def _with_parameters(caller: Caller, count: int) -> Callable[..., pa.Array]:
    def kernel(*columns: pa.ChunkedArray) -> pa.Array:
        return caller(*columns)

    # DuckDB counts the parameters that a function has.
    parameters = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(count)]
    kernel.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return kernel
