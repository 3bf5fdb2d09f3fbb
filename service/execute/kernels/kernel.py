"""Construction of kernels from functions that work on single values or on NumPy arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Kernel = tuple[Callable[..., pa.Array], list[str], str]
"""A function from Arrow arrays to an Arrow array, the DuckDB types of its parameters, and its DuckDB result type."""

ARROW = {
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR[]": pa.list_(pa.string()),
}


def each(compute: Callable[..., Any], *types: str) -> Kernel:
    """Return a kernel for a function that works on single values. If an argument is NULL, so is the result.

    The last of `types` is the type of the result.
    """

    def kernel(*columns: Any) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else compute(*row) for row in rows], ARROW[types[-1]])

    return declared(kernel, types)


def whole(compute: Callable[..., Any], *types: str) -> Kernel:
    """Return a kernel for a function that works on NumPy arrays. If an argument is NULL, so is the result."""

    def kernel(*columns: Any) -> pa.Array:
        null = np.zeros(len(columns[0]), np.bool_)
        arrays = []
        for column in columns:
            null |= column.is_null().to_numpy(zero_copy_only=False)
            arrays.append(column.fill_null(1).to_numpy(zero_copy_only=False))
        with np.errstate(all="ignore"):
            values = compute(*arrays)
        return pa.array(values, ARROW[types[-1]], mask=null)

    return declared(kernel, types)


def declared(kernel: Callable[..., pa.Array], types: tuple[str, ...]) -> Kernel:
    """Return a kernel with a signature, from which DuckDB reads the number of parameters."""
    parameters = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(types) - 1)]
    kernel.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return kernel, list(types[:-1]), types[-1]
