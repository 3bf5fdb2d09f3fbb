"""The map, set and list views of Python aggregates: like Python's own collections, but stored in the state.

An element is read when it is accessed, and written at the end of the batch. `fetch` reads several elements at once,
which is faster than one at a time. Iterating and `len` read the whole view of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, MutableSet, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.order import comparable
from rowkind.avro.python_values import to_python
from rowkind.avro.schema import Field, Record
from rowkind.avro.type import Type
from rowkind.service.python.errors import FunctionError
from rowkind.service.python.exact import MisfitError, exact_values
from rowkind.service.python.function import ViewType


class Store(Protocol):
    """The stored elements of one view of one group."""

    def read(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values of these keys, None for a missing one."""

    def all(self) -> dict[Any, Any]:
        """Return all elements in the order of their keys."""

    def write(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def remove(self, key: Any) -> None:
        """Remove a key and its value."""


@dataclass(frozen=True)
class Elements:
    """The codec of a view's elements; implements `operators.aggregate.group_views.ViewCodec`."""

    of: ViewType

    def keys(self, keys: Sequence[Any]) -> pa.BinaryArray:
        """Encode keys so that equal keys have equal bytes. Raises ValueError for an invalid key."""
        if any(key != key for key in keys):  # noqa: PLR0124 -- NaN is
            raise ValueError(f"NaN cannot be a key of the view {self.of.name}")
        return comparable(self._array(keys, self.of.key))

    def pack(self, keys: Sequence[Any], values: Sequence[Any]) -> pa.BinaryArray:
        """Encode each key and value to an entry. Raises ValueError for an invalid value."""
        columns = {"key": self._array(keys, self.of.key)}
        if self.of.value is not None:
            columns["value"] = self._array(values, self.of.value)
        return codec.encode(self._record, columns)

    def unpack(self, entries: pa.BinaryArray) -> list[tuple[Any, Any]]:
        """Decode each entry to its key and value."""
        rows = codec.read(self._record, entries)
        keys = to_python(rows.column("key"))
        values = [True] * len(keys) if self.of.value is None else to_python(rows.column("value"))
        return list(zip(keys, values, strict=True))

    def opened(self, store: Store, state: dict[str, Any]) -> MapView | SetView | ListView:
        """Return the view over its stored elements. A list keeps its counter in the state."""
        match self.of.kind:
            case "map":
                return MapView(store)
            case "set":
                return SetView(store)
            case "list":
                return ListView(store, state, self.of.counter)

    @property
    def _record(self) -> Record:
        value = () if self.of.value is None else (Field("value", self.of.value),)
        return Record("Element", (Field("key", self.of.key), *value))

    def _array(self, values: Sequence[Any], type_: Type) -> pa.Array:
        try:
            found = exact_values(values, type_.arrow)
        except MisfitError as error:
            raise FunctionError(f"the view {self.of.name} stores {type_.sql}: {error}") from None
        if found.null_count and not type_.nullable:
            raise ValueError(f"the view {self.of.name} stores {type_.sql} NOT NULL, but a value is None")
        return found


class MapView(MutableMapping[Any, Any]):
    """A map view. Neither keys nor values can be None."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fetch(self, keys: Iterable[Any]) -> None:
        """Read the values of these keys in one step, before they are accessed."""
        self._store.read(list(keys))

    def __getitem__(self, key: Any) -> Any:
        (value,) = self._store.read([key])
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._store.write(key, value)

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._store.remove(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store.all())

    def __len__(self) -> int:
        return len(self._store.all())


class SetView(MutableSet[Any]):
    """A set view. It cannot contain None."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fetch(self, keys: Iterable[Any]) -> None:
        """Read in one step whether these values are in the set, before they are accessed."""
        self._store.read(list(keys))

    def add(self, value: Any) -> None:
        """Add a value."""
        self._store.write(value, True)

    def discard(self, value: Any) -> None:
        """Remove a value if it is in the set."""
        if value in self:
            self._store.remove(value)

    def __contains__(self, value: object) -> bool:
        return self._store.read([value])[0] is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store.all())

    def __len__(self) -> int:
        return len(self._store.all())


class ListView:
    """A list view, in the order in which elements were appended. It cannot contain None."""

    def __init__(self, store: Store, state: dict[str, Any], counter: str) -> None:
        self._store = store
        self._state = state
        self._counter = counter

    def append(self, value: Any) -> None:
        """Append a value."""
        self._store.write(self._state[self._counter], value)
        self._state[self._counter] += 1

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values."""
        for value in values:
            self.append(value)

    def remove(self, value: Any) -> None:
        """Remove the first equal element. Raises ValueError if there is none."""
        for number, other in self._store.all().items():
            if other == value:
                self._store.remove(number)
                return
        raise ValueError(f"{value!r} is not in the list")

    def clear(self) -> None:
        """Remove all elements."""
        for number in self._store.all():
            self._store.remove(number)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._store.all().values()))

    def __len__(self) -> int:
        return len(self._store.all())
