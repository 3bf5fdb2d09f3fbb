"""Match the changes of an operator input with stored rows that may be equal.

An entry's *place* is its 64-bit sort position within a run (`operators.arrangement.layout`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.columns.changes import Changes, Indices, Uint64s, concat_binary
from rowkind.operators.columns.grouping import Groups, group
from rowkind.operators.columns.hashing import hash64, mix


@dataclass(frozen=True, slots=True)
class Matched:
    """Changes with their places, stored rows, and groups of equal rows.

    The rows that are grouped are the changes, followed by the stored rows.
    """

    changes: Changes
    place: Uint64s
    stored: Entries
    groups: Groups

    @classmethod
    def by(
        cls, changes: Changes, place: Uint64s, stored: Entries, *columns: tuple[pa.BinaryArray, pa.BinaryArray]
    ) -> Matched:
        """Group rows that are equal in all `columns`, each given as a pair: for the changes and for the stored rows."""
        codes = mix(np.concatenate([changes.hash, stored.hash]), np.concatenate([place, stored.place]))
        return cls(changes, place, stored, group(codes, [concat_binary(pair) for pair in columns]))

    @classmethod
    def by_payload(cls, arrangement: Arrangement, changes: Changes, place: Uint64s) -> Matched:
        """Group rows whose keys are equal and whose payloads are alike. In layout *ordered*, also compare sub-keys."""
        # In layout *ordered*, very many rows may share a place.
        ties = arrangement.layout == "ordered"
        stored = arrangement.at(place, changes.payload if ties else None)
        columns = [(changes.key, stored.key), (arrangement.alike(changes.payload), arrangement.alike(stored.payload))]
        if not ties:
            return cls.by(changes, place, stored, *columns)
        columns.append((changes.sub_key, stored.sub_key))
        payload = concat_binary((changes.payload, stored.payload))
        codes = mix(np.concatenate([changes.hash, stored.hash]), hash64(payload))
        return cls(changes, place, stored, group(codes, [concat_binary(pair) for pair in columns]))

    @property
    def of_change(self) -> Indices:
        """The group of each change."""
        return self.groups.ids[: len(self.changes)]

    @property
    def of_stored(self) -> Indices:
        """The group of each stored row."""
        return self.groups.ids[len(self.changes) :]

    def take(self, rows: Indices) -> Matched:
        """Return a copy with only the changes at `rows`, and all stored rows."""
        groups = Groups(np.concatenate([self.of_change[rows], self.of_stored]), self.groups.count)
        return Matched(self.changes.take(rows), self.place[rows], self.stored, groups)


def new_entries(arrangement: Arrangement, changes: Changes, place: Uint64s) -> Entries:
    """Return an entry with weight 1 for each change, as a new row of the arrangement."""
    rows = len(changes)
    return Entries(
        place,
        changes.hash,
        changes.key,
        changes.sub_key,
        changes.payload,
        np.ones(rows, np.int64),
        arrangement.written_at(changes.payload),
        changes.seq,
        np.zeros(rows, np.int8),
    )
