"""How the times of two matching rows compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rowkind.operators.field_roles import COLUMN

Comparison = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class TimeMatch:
    """`left` compares with `right`, time columns of the two sides. Of the right rows, the nearest counts.

    `versions`: the right side is a table with a key, whose rows are versions in the order in which they were sent.
    """

    left: str = field(metadata=COLUMN)
    comparison: Comparison
    right: str = field(metadata=COLUMN)
    versions: bool = False

    @property
    def looks_back(self) -> bool:
        """Whether the preceding right row counts, and not the next one."""
        return self.comparison in (">=", ">")
