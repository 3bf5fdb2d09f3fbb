"""The comparison of times in an as-of join."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rowkind.operators.field_roles import COLUMN

Comparison = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class TimeMatch:
    """The comparison between the time columns `left` and `right` of the two sides. The nearest right row matches.

    `versions` says whether the right side is a table with a key, so that its rows are versions in the order in which
    they were sent.
    """

    left: str = field(metadata=COLUMN)
    comparison: Comparison
    right: str = field(metadata=COLUMN)
    versions: bool = False

    @property
    def looks_back(self) -> bool:
        """Whether a left row matches the preceding right row instead of the next one."""
        return self.comparison in (">=", ">")
