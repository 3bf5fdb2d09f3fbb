"""Test support for as-of joins: inputs whose rows have times close to each other, and the definition of the join.

Rows are (id, key, time).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.temporal_join.asof import AsofJoinSpec, AsofSide
from rowkind.operators.temporal_join.nearest import NOWHERE
from rowkind.operators.temporal_join.versions import Deletes
from tests.changelogs import Change, Row, pack, unpack
from tests.oracle.inputs import Batches, Input
from tests.oracle.naive_join import Stored

Comparison = Literal[">=", ">", "<=", "<"]
COMPARISONS: tuple[Comparison, ...] = (">=", ">", "<=", "<")

PAD: Row = (None, None, None)


@dataclass(frozen=True)
class Places:
    """The positions of rows along their key, for one comparison of left times with right times."""

    comparison: Comparison
    left: bool

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the position of each row."""
        return np.array([self.of(unpack(payload)) for payload in payloads.to_pylist()], np.int64)

    def of(self, row: Row) -> int:
        """Return the position of a row."""
        if row[2] is None:
            return NOWHERE
        sign = -1 if self.comparison.startswith(">") else 1
        return sign * row[2] + (self.left and len(self.comparison) == 1)


def spec(
    comparison: Comparison,
    left: Input,
    right: Input,
    *,
    padded: bool,
    versions: Deletes | None = None,
    refreshes: bool = False,
) -> AsofJoinSpec:
    """Return an as-of join of these rows; with `versions`, the right side is a table of versions with such deletes."""
    sides = (AsofSide(Places(comparison, number == 0), of.by_seq) for number, of in enumerate((left, right)))
    pad = pack(PAD) if padded else None
    return AsofJoinSpec(*sides, pad, versions, refreshes=refreshes)


def nearest(comparison: Comparison, row: Row, others: Iterable[Stored]) -> Stored | None:
    """Return the nearest row of the key that satisfies the comparison; on a tie, the latest to arrive (definition)."""
    time = row[2]
    if time is None or row[1] is None:
        return None
    holds = {">=": time.__ge__, ">": time.__gt__, "<=": time.__le__, "<": time.__lt__}[comparison]
    found = [other for other in others if other.row[1] == row[1] and other.row[2] is not None and holds(other.row[2])]
    return min(found, key=lambda other: (abs(time - (other.row[2] or 0)), -other.seq), default=None)


def joined(comparison: Comparison, left: Iterable[Row], right: Sequence[Stored], *, padded: bool) -> Counter[Row]:
    """Return each left row joined with the nearest right row (definition)."""
    result: Counter[Row] = Counter()
    for row in left:
        other = nearest(comparison, row, right)
        if other is not None and other.row[0] != END:
            result[*row, *other.row] += 1
        elif padded:
            result[*row, *PAD] += 1
    return result


def complete(batches: Batches, *, timed: bool = True) -> Batches:
    """Drop the right rows whose key or, if they are `timed`, whose time is NULL; the plan filters them as well."""
    needed = slice(1, 3 if timed else 2)
    return [[change for change in batch if change.side == 0 or None not in change.row[needed]] for batch in batches]


END = -1
"""The id of a row that marks the end of a key."""


class Versions:
    """The versions of a table by definition: for each key and time, the row or an end marker."""

    def __init__(self, deletes: Deletes) -> None:
        self._deletes = deletes
        self._of: dict[int | None, dict[int, Stored]] = {}

    def apply(self, batch: Iterable[Change]) -> None:
        """Apply changes in the form in which the table sent them."""
        for change in sorted(batch, key=lambda each: each.seq):
            key, time = change.row[1], change.row[2]
            versions = self._of.setdefault(key, {})
            if change.kind == RowKind.DELETE:
                if self._deletes != "with rows" or time is None:
                    # The delete ends the key where its newest version begins, or at its own time if that is later.
                    says = [time] if time is not None and self._deletes == "by key, timed" else []
                    time = max([*versions, *says]) if versions else None
                if time is not None:
                    versions[time] = Stored((END, key, time), 0, change.seq)
            elif change.sign > 0 and time is not None:
                versions[time] = Stored(change.row, 0, change.seq)

    @property
    def stored(self) -> list[Stored]:
        """Return all versions."""
        return [version for versions in self._of.values() for version in versions.values()]
