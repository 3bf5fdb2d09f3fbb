"""Views: a user-defined aggregate function's keyed state for a group, read on demand.

A view is a list, map or set of any size, stored with one entry per element, separately from the accumulator. A batch
reads and writes only the entries that it touches. One arrangement stores the views of all functions of an aggregate. An
entry's key is the group's key. Its sub-key consists of the view's number and the element's key within the view. Changed
entries are kept in memory until the end of the batch.

Entries live as long as their group. As in `operators.aggregate.arranged_values`, entries are stored with twice the
group's TTL. If a group is written at least a TTL after the last rewrite of its entries, all of its entries are
rewritten. Entries that are older than their group are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.arranged_values import GroupKeys
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import places
from rowkind.operators.columns.changes import Indices, binary

_ABSENT = object()
_Place = tuple[int, int]
"""The number of a group and the number of a view."""


class ViewCodec(Protocol):
    """A codec for a view's keys and values. Keys must be hashable and must not be None."""

    def keys(self, keys: Sequence[Any]) -> pa.BinaryArray:
        """Serialize keys. The bytes of two keys must be equal if and only if the keys are equal."""

    def pack(self, keys: Sequence[Any], values: Sequence[Any]) -> pa.BinaryArray:
        """Serialize entries, given the key and the value of each."""

    def unpack(self, entries: pa.BinaryArray) -> list[tuple[Any, Any]]:
        """Deserialize the key and the value of each entry."""


class GroupViews:
    """The views of the touched groups within one batch. Groups and views are identified by number."""

    def __init__(self, arrangement: Arrangement, codecs: Sequence[ViewCodec], groups: GroupKeys) -> None:
        self.arrangement = arrangement
        self._codecs = codecs
        self._groups = groups
        self._keys = groups.key.to_pylist()
        self._known: dict[_Place, dict[Any, Any]] = {}
        self._dirty: dict[_Place, dict[Any, None]] = {}
        self._whole: set[_Place] = set()
        self._stored: dict[tuple[_Place, Any], tuple[int, int]] = {}
        self._entries: list[Entries] = []

    def read(self, place: _Place, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, or None if the view does not have the key."""
        known = self._known.setdefault(place, {})
        wanted = [key for key in dict.fromkeys(keys) if key not in known] if place not in self._whole else []
        if wanted:
            group, number = place
            sub_keys = self._sub_keys(number, wanted)
            hashes = np.repeat(self._groups.hash[group : group + 1], len(wanted))
            found = self.arrangement.at(places("unique key", hashes, sub_keys, sub_keys))
            self._take_in(place, found, set(sub_keys.to_pylist()))
            for key in wanted:
                known.setdefault(key, _ABSENT)
        values = (known.get(key, _ABSENT) for key in keys)
        return [None if value is _ABSENT else value for value in values]

    def has(self, place: _Place, key: Any) -> bool:
        """Return whether the view has an entry with this key."""
        self.read(place, [key])
        return self._known[place].get(key, _ABSENT) is not _ABSENT

    def all(self, place: _Place) -> dict[Any, Any]:
        """Return all entries of a view, in the order of their serialized keys."""
        group, number = place
        known = self._known.setdefault(place, {})
        if place not in self._whole:
            self._take_in(place, self.arrangement.lookup(self._groups.hash[group : group + 1]), None)
            self._whole.add(place)
        there = [key for key, value in known.items() if value is not _ABSENT]
        if not there:
            return {}
        codes = self._codecs[number].keys(there).to_pylist()
        return {there[at]: known[there[at]] for at in sorted(range(len(there)), key=codes.__getitem__)}

    def write(self, place: _Place, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self.read(place, [key])
        self._known[place][key] = value
        self._dirty.setdefault(place, {})[key] = None

    def remove(self, place: _Place, key: Any) -> None:
        """Remove the entry with this key."""
        self.write(place, key, _ABSENT)

    def restore(self, group: int) -> None:
        """Discard the batch's writes to the views of a group."""
        for place in [place for place in self._known if place[0] == group]:
            del self._known[place]
            self._dirty.pop(place, None)
            self._whole.discard(place)

    def drop(self, group: int) -> None:
        """Remove all view entries of a group."""
        for number in range(len(self._codecs)):
            for key in self.all((group, number)):
                self.remove((group, number), key)

    def refresh(self, groups: Indices) -> None:
        """Mark all view entries of these groups to be rewritten."""
        for group in groups.tolist():
            for number in range(len(self._codecs)):
                found = self.all((group, number))
                self._dirty.setdefault((group, number), {}).update(dict.fromkeys(found))

    def finish(self) -> None:
        """Append the changes of the entries to the arrangement."""
        gone = [
            self._stored[place, key]
            for place, keys in self._dirty.items()
            for key in keys
            if (place, key) in self._stored
        ]
        if gone:
            starts = np.cumsum([0, *map(len, self._entries)])
            at = np.array([starts[chunk] + row for chunk, row in gone])
            self.arrangement.append(-Entries.concat(self._entries).take(at))
        for (group, number), keys in self._dirty.items():
            values = self._known[group, number]
            come = [key for key in keys if values.get(key, _ABSENT) is not _ABSENT]
            if come:
                self.arrangement.append(self._new(group, number, come, [values[key] for key in come]))

    def _new(self, group: int, number: int, keys: list[Any], values: list[Any]) -> Entries:
        count = len(keys)
        hashes = np.repeat(self._groups.hash[group : group + 1], count)
        sub_key, payload = self._sub_keys(number, keys), self._codecs[number].pack(keys, values)
        return Entries(
            places("unique key", hashes, sub_key, payload),
            hashes,
            binary([self._keys[group]] * count),
            sub_key,
            payload,
            np.ones(count, np.int64),
            np.repeat(self._groups.written_at[group : group + 1], count),
            np.zeros(count, np.int64),
            np.zeros(count, np.int8),
        )

    def _take_in(self, place: _Place, found: Entries, sub_keys: set[bytes] | None) -> None:
        """Cache entries that were read for a view. Keys that the batch has already written keep their new values."""
        group, number = place
        known, mine = self._known[place], self._keys[group]
        fits = [
            key == mine and sub[0] == number and (sub_keys is None or sub in sub_keys)
            for key, sub in zip(found.key.to_pylist(), found.sub_key.to_pylist(), strict=True)
        ]
        found = found.filter(np.array(fits, np.bool_) & (found.written_at >= self._groups.born[group]))
        if not len(found):
            return
        for row, (key, value) in enumerate(self._codecs[number].unpack(found.payload)):
            self._stored[place, key] = len(self._entries), row
            known.setdefault(key, value)
        self._entries.append(found)

    def _sub_keys(self, number: int, keys: Sequence[Any]) -> pa.BinaryArray:
        begin = bytes([number])
        return binary([begin + key for key in self._codecs[number].keys(keys).to_pylist()])
