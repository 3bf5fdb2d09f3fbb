"""What Spark SQL computes and DuckDB has no function for, made known to a connection under names of its own.

Macros are DuckDB SQL. Kernels are Python over the values of a whole column: NumPy where it knows the function, else one
step per value, because the library that knows works on single values only.
"""

from __future__ import annotations

from typing import Any

from rowkind.service.execute.kernels import decimals, failures, hashes, json, moments, numbers, texts


def register(connection: Any) -> None:
    """Make all of them known to a DuckDB connection."""
    for module in (failures, numbers, decimals, texts, moments, hashes, json):
        for name, (kernel, parameters, result) in module.KERNELS.items():
            connection.create_function(name, kernel, parameters, result, type="arrow", null_handling="special")
        for macro in module.MACROS:
            connection.execute(f"CREATE TEMP MACRO {macro}")
