"""Batches: changes, together with refreshes, truncations and dead letters.

A change inserts or retracts one row. The other three are passed through a query together with the changes, but most
code does not handle them:

- A *refresh* names a row that was written again unchanged. An operator with a TTL restarts the row's TTL, and refreshes
  the rows that are derived from the row. A refresh has no effect if its row does not exist or has expired.
- A *truncation* retracts all rows of its table that arrived before it. It is sent to every shard. Only operators that
  keep all rows of the table receive it (`operators.normalize.truncation`).
- A *dead letter* is a record or row that a job sends to its dead letter topic. Only the writer reads its content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from rowkind.operators.columns.changes import Changes, Rows, binary, concat_binary

_NO_ROWS, _NO_CHANGES, _NO_LETTERS = Rows.empty(), Changes.empty(), binary(())


@dataclass(frozen=True, slots=True)
class Emitted:
    """The output of a scan or an operator for one batch, before a destination is assigned.

    - `refreshes`: rows that were written again unchanged, as insertions. A scan emits no refreshes.
    - `truncation`: the arrival number of the last truncation of a scan's table, or None.
    """

    rows: Rows
    refreshes: Rows = _NO_ROWS
    truncation: int | None = None

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows and refreshes of an operator's outputs."""
        return cls(Rows.concat([each.rows for each in parts]), Rows.concat([each.refreshes for each in parts]))


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes with a destination, together with refreshes, truncations and dead letters.

    - `refreshes`: rows that were written again unchanged, as insertions.
    - `truncations`: the arrival number of each side's last truncation.
    - `letters`: dead letters, packed.
    """

    changes: Changes
    refreshes: Changes = _NO_CHANGES
    truncations: Mapping[int, int] = field(default_factory=dict)
    letters: pa.BinaryArray = field(default_factory=lambda: _NO_LETTERS)

    def __len__(self) -> int:
        return len(self.changes) + len(self.refreshes) + len(self.truncations) + len(self.letters)

    @classmethod
    def empty(cls) -> Self:
        """Return an empty batch."""
        return cls(_NO_CHANGES)

    @classmethod
    def of_letters(cls, letters: pa.BinaryArray) -> Self:
        """Return a batch that contains only dead letters."""
        return cls(_NO_CHANGES, letters=letters)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the batches. If a side has several truncations, only the latest is kept."""
        if len(parts) == 1:
            return parts[0]
        truncations: dict[int, int] = {}
        for each in parts:
            for side, seq in each.truncations.items():
                truncations[side] = max(seq, truncations.get(side, seq))
        return cls(
            Changes.concat([each.changes for each in parts]),
            Changes.concat([each.refreshes for each in parts if len(each.refreshes)]),
            truncations,
            concat_binary([each.letters for each in parts if len(each.letters)]),
        )

    @property
    def touched(self) -> Changes:
        """The changes followed by the refreshes: all rows whose keys the batch touches."""
        return Changes.concat([self.changes, self.refreshes]) if len(self.refreshes) else self.changes

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return self.changes.nbytes + self.refreshes.nbytes + int(self.letters.nbytes)

    def side(self, side: int) -> Self:
        """Return the changes, refreshes and truncation of one side."""
        truncations = {side: self.truncations[side]} if side in self.truncations else {}
        changes, refreshes = (part.filter(part.side == side) for part in (self.changes, self.refreshes))
        return replace(self, changes=changes, refreshes=refreshes, truncations=truncations)

    def piece(self, number: int, pieces: int) -> Self:
        """Return piece `number` of the batch, cut into `pieces` pieces of similar size. Piece 0 has the truncations."""
        if pieces == 1:
            return self

        def bounds(count: int) -> tuple[int, int]:
            return count * number // pieces, count * (number + 1) // pieces

        start, end = bounds(len(self.letters))
        return type(self)(
            self.changes.slice(*bounds(len(self.changes))),
            self.refreshes.slice(*bounds(len(self.refreshes))),
            self.truncations if number == 0 else {},
            self.letters.slice(start, end - start),
        )

    def with_sub_keys(self, sub_key: pa.BinaryArray) -> Self:
        """Return the batch with its sub-keys replaced by `sub_key`, whose values have the same order as `touched`."""
        changes, refreshes = len(self.changes), len(self.refreshes)
        return replace(
            self,
            changes=replace(self.changes, sub_key=sub_key.slice(0, changes)),
            refreshes=replace(self.refreshes, sub_key=sub_key.slice(changes, refreshes)),
        )
