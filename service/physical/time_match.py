"""How the times of two rows compare that belong together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rowkind.operators.field_roles import COLUMN

Comparison = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class TimeMatch:
    """`left` compares with `right`, columns of the two sides that are times; of right rows the nearest counts.

    `versions` says that the right side is a table with a key, whose rows count one after the other, as they were sent.
    """

    left: str = field(metadata=COLUMN)
    comparison: Comparison
    right: str = field(metadata=COLUMN)
    versions: bool = False

    @property
    def looks_back(self) -> bool:
        """Whether the row before counts, and not the one that comes next."""
        return self.comparison in (">=", ">")
