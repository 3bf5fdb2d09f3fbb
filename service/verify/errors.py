"""Why a sink, or a part of it, cannot be compared."""

from __future__ import annotations

from typing import Any


class NotComparedError(Exception):
    """A construct that has no faithful form in DuckDB. `at` is the part of the SQL that needs it, if it is known."""

    def __init__(self, reason: str, at: Any = None) -> None:
        self.reason = reason
        self.at = at
        super().__init__(reason)
