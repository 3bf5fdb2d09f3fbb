"""Small changelogs for tests of operators: rows are tuples of integers and None, in a fixed packed encoding.

A `Change` has its input, its kind, its row and its arrival number. A `Table` says which columns make the key and the
sub-key. `changes` packs a list of changes in the form that operators take, and `unpack` decodes payloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import WEIGHTS, Changes, Rows, Uint64s, binary
from rowkind.operators.columns.hashing import hash64

Row = tuple[int | None, ...]
Hash = Callable[[list[bytes]], Uint64s]


@dataclass(frozen=True)
class Table:
    """The columns of a row that make its key, its sub-key and its payload."""

    key: tuple[int, ...]
    sub_key: tuple[int, ...] = ()
    payload: tuple[int, ...] = (0, 1, 2)

    def project(self, row: Row) -> Row:
        """Return the columns of the row that are in the payload."""
        return tuple(row[column] for column in self.payload)


@dataclass(frozen=True)
class Change:
    """One change of input `side`, or a refresh, which has no kind."""

    side: int
    kind: RowKind | None
    row: Row
    seq: int

    @property
    def sign(self) -> int:
        """+1 or -1; 0 for a refresh."""
        return 0 if self.kind is None else int(WEIGHTS[self.kind])

    def __str__(self) -> str:
        return f"{'LR'[self.side]} {'~' if self.kind is None else self.kind.symbol} {self.row} seq {self.seq}"


def pack(row: Row) -> bytes:
    """Return a row as bytes: per column a marker and, unless it is None, eight bytes that sort like the numbers."""
    return b"".join(b"\0" if value is None else b"\1" + (value + (1 << 63)).to_bytes(8, "big") for value in row)


def unpack(payload: bytes) -> Row:
    """Return the row that `pack` packed."""
    values: list[int | None] = []
    position = 0
    while position < len(payload):
        if payload[position] == 0:
            values.append(None)
            position += 1
        else:
            values.append(int.from_bytes(payload[position + 1 : position + 9], "big") - (1 << 63))
            position += 9
    return tuple(values)


def strong_hash(values: list[bytes]) -> Uint64s:
    """Return the hashes of the product."""
    return hash64(binary(values))


def weak_hash(values: list[bytes]) -> Uint64s:
    """Return hashes under which many different keys collide."""
    return hash64(binary(values)) % np.uint64(3) << np.uint64(32)


def constant_hash(values: list[bytes]) -> Uint64s:
    """Return hashes under which all keys collide."""
    return np.zeros(len(values), np.uint64)


def half_hash(values: list[bytes]) -> Uint64s:
    """Return hashes that distinguish keys, but not by the upper half, so that all keys share a place."""
    return hash64(binary(values)) & np.uint64(0xFFFFFFFF)


HASHES: tuple[Hash, ...] = (strong_hash, weak_hash, constant_hash, half_hash)


def packed(batch: Sequence[Change], tables: Sequence[Table], hashed: Hash = strong_hash) -> Batch:
    """Return the changes and refreshes as columns, in the given order; `tables` has the table of each side."""
    return split(batch, lambda part: changes(part, tables, hashed))


def split(batch: Sequence[Change], columns: Callable[[Sequence[Change]], Changes]) -> Batch:
    """Return the changes and, as insertions, the refreshes of a batch, each packed by `columns`."""
    refreshes = [replace(change, kind=RowKind.INSERT) for change in batch if change.kind is None]
    return Batch(columns([change for change in batch if change.kind is not None]), columns(refreshes))


def changes(batch: Sequence[Change], tables: Sequence[Table], hashed: Hash = strong_hash) -> Changes:
    """Return the changes as columns, in the given order; `tables` has the table of each side."""
    keys: list[bytes | None] = []
    subs: list[bytes] = []
    hash_of: list[bytes] = []
    for change in batch:
        table = tables[change.side]
        key = [change.row[column] for column in table.key]
        sub_key = pack(tuple(change.row[column] for column in table.sub_key))
        keys.append(None if None in key else pack(tuple(key)))
        subs.append(sub_key)
        hash_of.append(keys[-1] if keys[-1] is not None else sub_key or pack(table.project(change.row)))
    return Changes(
        np.array([change.side for change in batch], np.int8),
        np.array([change.kind for change in batch], np.int8),
        hashed(hash_of),
        binary(keys),
        binary(subs),
        np.array([change.seq for change in batch], np.int64),
        binary(pack(tables[change.side].project(change.row)) for change in batch),
    )


def changed(rows: Rows) -> Counter[Row]:
    """Return how often each row is inserted; negative if it is retracted."""
    step: Counter[Row] = Counter()
    for kind, payload in zip(rows.kind.tolist(), rows.payload.to_pylist(), strict=True):
        assert kind in (RowKind.INSERT, RowKind.DELETE), f"an operator emitted kind {kind}"
        step[unpack(payload)] += 1 if kind == RowKind.INSERT else -1
    return step


def refreshed(emitted: Emitted) -> Counter[Row]:
    """Return how often each row is refreshed."""
    assert (emitted.refreshes.kind == RowKind.INSERT).all()
    return Counter(map(unpack, emitted.refreshes.payload.to_pylist()))


def fold(view: Counter[Row], rows: Rows) -> None:
    """Apply output rows to a materialised view; fail if a retracted row is not in it."""
    for row, weight in changed(rows).items():
        view[row] += weight
        assert view[row] >= 0, f"{row} was taken back and is not there"
        if view[row] == 0:
            del view[row]


def net(rows: Rows) -> bool:
    """Return whether no row is both inserted and retracted."""
    signs: dict[bytes, set[int]] = {}
    for kind, payload in zip(rows.kind.tolist(), rows.payload.to_pylist(), strict=True):
        signs.setdefault(payload, set()).add(kind)
    return all(len(kinds) == 1 for kinds in signs.values())


def show(batches: Iterable[Sequence[Change]]) -> str:
    """Return a changelog as text, one change per line, with a line between batches."""
    return "\n--\n".join("\n".join(str(change) for change in batch) for batch in batches)
