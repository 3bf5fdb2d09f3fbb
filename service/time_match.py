"""How the times of two rows compare that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Comparison = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class TimeMatch:
    """`left` compares with `right`, columns of the two sides that are times; of right rows the nearest counts.

    `versions` says that the right side is a table with a key, whose rows count one after the other, as they were sent.
    """

    left: str
    comparison: Comparison
    right: str
    versions: bool = False

    @property
    def looks_back(self) -> bool:
        """Whether the row before counts, and not the one that comes next."""
        return self.comparison in (">=", ">")
