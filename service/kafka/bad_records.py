"""Collects the records that cannot be decoded to rows, each with its reason."""

from __future__ import annotations

import numpy as np

from rowkind.avro.codec import Decoded
from rowkind.avro.cursor import Fault
from rowkind.operators.columns.changes import Indices


class Faults:
    """The faults of a set of records: the stage at which each bad record failed, and the first reason found.

    `nulls` lists the records with a NULL in a NOT NULL column. A record that the table skips is also marked in `bad`,
    but has no reason.
    """

    def __init__(self, count: int) -> None:
        self.bad = np.zeros(count, np.bool_)
        self.reasons: dict[int, tuple[str, str]] = {}
        self.nulls: list[int] = []

    def add(self, at: int, stage: str, reason: str) -> None:
        """Mark one record as bad. Only the first fault of a record counts."""
        if not self.bad[at]:
            self.bad[at] = True
            self.reasons[at] = (stage, reason)

    def add_all(self, where: Indices, stage: str, reason: str) -> None:
        """Mark several records as bad for the same reason."""
        for at in where.tolist():
            self.add(at, stage, reason)

    def leave_out(self, where: Indices) -> None:
        """Skip records that the table does not select. These records are not errors."""
        self.bad[where] = True

    def add_decoded(self, where: Indices, stage: str, decoded: Decoded) -> None:
        """Mark the records that failed to decode, with the decoder's reasons."""
        for row in np.flatnonzero(decoded.bad).tolist():
            at = int(where[row])
            self.add(at, stage, decoded.reason(row))
            if decoded.fault(row) == Fault.NOT_NULL:
                self.nulls.append(at)
