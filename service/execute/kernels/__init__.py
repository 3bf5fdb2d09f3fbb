"""Spark SQL functions that DuckDB lacks. They are registered with a connection under names of their own.

Macros are DuckDB SQL. Kernels are Python functions over whole columns. If NumPy has the function, the kernel uses
NumPy. Otherwise, the kernel processes one value at a time, because the library with the function works on single
values.
"""

from __future__ import annotations

from typing import Any

from rowkind.service.execute.kernels import decimals, failures, hashes, json, moments, numbers, texts


def register(connection: Any) -> None:
    """Register all macros and kernels with a DuckDB connection."""
    for module in (failures, numbers, decimals, texts, moments, hashes, json):
        for name, (kernel, parameters, result) in module.KERNELS.items():
            connection.create_function(name, kernel, parameters, result, type="arrow", null_handling="special")
        for macro in module.MACROS:
            connection.execute(f"CREATE TEMP MACRO {macro}")
