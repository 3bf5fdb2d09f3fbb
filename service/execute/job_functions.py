"""Registration of the job's own Python functions with DuckDB. A function is registered when an expression calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rowkind.service.python.calling import Caller
from rowkind.service.python.function import PythonFunction


def make_known(connection: Any, known: dict[str, str], function: PythonFunction) -> None:
    """Register a function with a connection. `known` maps each registered function to a digest of the function's code.

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
    """Return the error in a job function that failed in this thread, or None if the row caused the failure."""
    found: str | None = getattr(Caller.fatal, "error", None)
    Caller.fatal.error = None
    return found


def _with_parameters(caller: Caller, count: int) -> Callable[..., pa.Array]:
    def kernel(*columns: pa.ChunkedArray) -> pa.Array:
        return caller(*columns)

    # DuckDB reads the number of parameters from the function's signature.
    parameters = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(count)]
    kernel.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return kernel
