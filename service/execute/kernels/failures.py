"""The kernel that makes a query fail on a value, with a message from the plan.

DuckDB's `error` function does the same, but it is volatile, and TRY does not accept volatile functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = ()


def _fail(text: str) -> str:
    raise ValueError(text)


KERNELS: Mapping[str, Kernel] = {"spark_fails": each(_fail, "VARCHAR", "VARCHAR")}
