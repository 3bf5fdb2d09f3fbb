"""Which records are no rows, and why."""

from __future__ import annotations

import numpy as np

from rowkind.avro.codec import Decoded
from rowkind.avro.cursor import Fault
from rowkind.operators.columns.changes import Indices


class Faults:
    """What is wrong with some records: the stage at which each failed, and the reason, the first one that was found.

    `nulls` are those with a NULL in a column that has none. A record that is left out is bad without a reason.
    """

    def __init__(self, count: int) -> None:
        self.bad = np.zeros(count, np.bool_)
        self.reasons: dict[int, tuple[str, str]] = {}
        self.nulls: list[int] = []

    def add(self, at: int, stage: str, reason: str) -> None:
        """One record."""
        if not self.bad[at]:
            self.bad[at] = True
            self.reasons[at] = (stage, reason)

    def add_all(self, where: Indices, stage: str, reason: str) -> None:
        """Some records for one reason."""
        for at in where.tolist():
            self.add(at, stage, reason)

    def leave_out(self, where: Indices) -> None:
        """Records that the table does not take, and that are no mistake."""
        self.bad[where] = True

    def add_decoded(self, where: Indices, stage: str, decoded: Decoded) -> None:
        """What decoding has found in these records."""
        for row in np.flatnonzero(decoded.bad).tolist():
            at = int(where[row])
            self.add(at, stage, decoded.reason(row))
            if decoded.fault(row) == Fault.NOT_NULL:
                self.nulls.append(at)
