"""The contents of an operator's input by the definition of its layout, one change at a time; random changelogs."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from tests import changelogs
from tests.changelogs import Change, Row, Table, pack

Batches = list[list[Change]]

TABLES: dict[Layout, Table] = {
    "one row per key": Table(key=(0,)),
    "unique key": Table(key=(1,), sub_key=(0,)),
    "multiset": Table(key=(1,)),
}
"""Rows are (id, key, value); with one row per key, the id is the key."""


@dataclass(frozen=True)
class Input:
    """One side of a join as the plan describes it."""

    layout: Layout
    by_seq: bool
    key_in_payload: bool = True

    @property
    def table(self) -> Table:
        """Return which columns are the key, the sub-key and the payload."""
        table = TABLES[self.layout]
        if self.key_in_payload:
            return table
        return replace(table, payload=tuple(column for column in table.payload if column not in table.key))


@dataclass(frozen=True)
class PartitionedInput(Input):
    """The only input of an operator over partitions; the partition key may be NULL."""

    hashed: changelogs.Hash = changelogs.strong_hash

    def sub_keys(self, rows: Sequence[Row]) -> pa.BinaryArray:
        """Return the sort keys of rows within their partition; here all are equal."""
        return binary(b"" for _ in rows)

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        return changelogs.split(batch, self._changes)

    def _changes(self, batch: Sequence[Change]) -> Changes:
        keys = [pack((change.row[1],)) for change in batch]
        return Changes(
            np.zeros(len(batch), np.int8),
            np.array([change.kind for change in batch], np.int8),
            self.hashed(keys),
            binary(keys),
            self.sub_keys([change.row for change in batch]),
            np.array([change.seq for change in batch], np.int64),
            binary(pack(change.row) for change in batch),
        )


class Materialised:
    """The rows of one input after some batches, kept as the definition of its layout says."""

    def __init__(self, of: Input) -> None:
        self._of = of
        self._rows: dict[object, Counter[Row]] = {}

    @property
    def rows(self) -> list[Row]:
        """Return all rows, each as often as it is present."""
        return [row for rows in self._rows.values() for row in rows.elements()]

    def apply(self, batch: Sequence[Change]) -> list[Change]:
        """Apply the changes of one batch and return the retractions that matched no row."""
        unmatched = []
        if not self._of.by_seq:
            batch, _ = netted(batch, lambda row: self._identity(row)[1])
        for change in sorted(batch, key=self._order):
            identity, single = self._identity(change.row)
            rows = self._rows.setdefault(identity, Counter())
            if change.sign > 0:
                if single:
                    rows.clear()
                rows[change.row] += 1
            elif not rows:
                unmatched.append(change)
            else:
                rows -= Counter([change.row]) if not single else rows
                self._rows[identity] = rows
        return unmatched

    def _order(self, change: Change) -> tuple[int, ...]:
        if self._of.by_seq:
            return change.seq, change.sign
        return (change.sign if self._identity(change.row)[1] else -change.sign), change.seq

    def _identity(self, row: Row) -> tuple[object, bool]:
        """Return the identity of a row, and whether at most one row can have that identity."""
        table = self._of.table
        key = tuple(row[column] for column in table.key)
        sub_key = tuple(row[column] for column in table.sub_key)
        if self._of.layout == "multiset" or (None in key and not sub_key):
            return row, False
        return (None if None in key else key, sub_key), True


def netted(batch: Sequence[Change], single: Callable[[Row], bool]) -> tuple[list[Change], list[Row]]:
    """Cancel equal rows of opposite sign where `single` holds; return the remaining changes and the cancelled rows.

    Of several equal rows, those with the lowest sequence numbers are cancelled.
    """
    left, again = [change for change in batch if not single(change.row)], []
    for row in dict.fromkeys(change.row for change in batch if single(change.row)):
        own = sorted((change for change in batch if change.row == row), key=lambda change: change.seq)
        come, gone, others = ([change for change in own if change.sign == sign] for sign in (1, -1, 0))
        count = min(len(come), len(gone))
        left += [*come[count:], *gone[count:], *others]
        again += [row] * count
    return left, again


def random_batches(inputs: Sequence[Input], seed: str, batches: int = 5, changes: int = 10) -> Batches:
    """Return a random changelog of all inputs: inserts, duplicates, replacements, deletes and unmatched retractions."""
    generator = random.Random(seed)
    states = [Materialised(of) for of in inputs]
    result: Batches = []
    seq = 0
    for _ in range(generator.randint(1, batches)):
        batch: list[Change] = []
        for _ in range(generator.randint(0, changes)):
            side = generator.randrange(len(inputs))
            seq += 1
            batch.append(_random_change(generator, side, [*states[side].rows, *_came(batch, side)], seq))
        for side, state in enumerate(states):
            state.apply([change for change in batch if change.side == side])
        generator.shuffle(batch)
        result.append(batch)
    return result


def times(batches: int) -> list[int]:
    """Return a time in ms for each batch: mostly ascending, some after a pause, some with the clock set back."""
    generator = random.Random("times")
    steps = (generator.choice([1, 1, 1, 2, 3, 6, -2]) for _ in range(batches))
    return list(itertools.accumulate(steps, initial=10))[1:]


def with_refreshes(batches: Batches, seed: str) -> Batches:
    """Add to each batch refreshes of rows that were inserted at any time before, whether or not they still exist."""
    generator = random.Random(f"refreshes, {seed}")
    came: list[Change] = []
    result = []
    for batch in batches:
        chosen = [generator.choice(came) for _ in range(generator.randint(0, 4))] if came else []
        result.append([*batch, *(replace(change, kind=None, seq=0) for change in chosen)])
        came += [change for change in batch if change.sign > 0]
    return result


def retractions(inputs: Sequence[Input], batches: Batches) -> list[Change]:
    """Return the changes that retract every row that is left after the batches."""
    seq = max((change.seq for batch in batches for change in batch), default=0)
    result = []
    for side, of in enumerate(inputs):
        state = Materialised(of)
        for batch in batches:
            state.apply([change for change in batch if change.side == side])
        for row in state.rows:
            seq += 1
            result.append(Change(side, RowKind.DELETE, row, seq))
    return result


def _came(batch: Sequence[Change], side: int) -> list[Row]:
    return [change.row for change in batch if change.side == side and change.sign > 0]


def _random_change(generator: random.Random, side: int, live: Sequence[Row], seq: int) -> Change:
    number = generator.random()
    if live and number < 0.4:
        return Change(side, generator.choice([RowKind.DELETE, RowKind.UPDATE_BEFORE]), generator.choice(live), seq)
    row = tuple(None if generator.random() < 0.1 else generator.randint(0, 3) for _ in range(3))
    if live and number < 0.55:
        # The same row again, or a row with the same identity and another value.
        old = generator.choice(live)
        row = old if generator.random() < 0.5 else (old[0], old[1], row[2])
    if number > 0.97:
        return Change(side, RowKind.DELETE, row, seq)
    return Change(side, generator.choice([RowKind.INSERT, RowKind.UPDATE_AFTER]), row, seq)


def shrink(batches: Batches, fails: Callable[[Batches], bool]) -> Batches:
    """Return a changelog that still fails, and from which no batch and no change can be removed."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(batches):
            if fails(smaller):
                batches, progress = smaller, True
                break
    return batches


def _smaller(batches: Batches) -> list[Batches]:
    without_batch = [batches[:i] + batches[i + 1 :] for i in range(len(batches))]
    without_change = [
        [*batches[:i], batch[:j] + batch[j + 1 :], *batches[i + 1 :]]
        for i, batch in enumerate(batches)
        for j in range(len(batch))
    ]
    return without_batch + without_change
