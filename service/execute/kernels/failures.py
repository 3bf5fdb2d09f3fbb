"""What stops a query on a value, in the plan's own words.

DuckDB's `error` would do the same, but is volatile, which TRY does not take.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = ()


def _fail(text: str) -> str:
    raise ValueError(text)


KERNELS: Mapping[str, Kernel] = {"spark_fails": each(_fail, "VARCHAR", "VARCHAR")}
