"""The join's definition with a clock: one row at a time, everything recomputed in every batch.

Where no TTL runs out this is plain SQL. What expiry adds is written down here and in the docstring of `operators.join`:
an invisible row neither matches nor can be taken back, what was emitted because of it stays, and a pad that went for
a match that has expired does not come back by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rowkind.operators.join import JoinKind
from tests.changelogs import Change, Row
from tests.oracle.inputs import Input

Condition = Callable[[Row, Row], bool]


@dataclass(eq=False)
class Stored:
    """A row of one input, when it was last written, and whether its pad is in the output."""

    row: Row
    written_at: int
    seq: int
    padded: bool = False


Match = Callable[[Stored, Stored], bool]


@dataclass
class NaiveSide:
    """One input: what it is, how long its rows live, and the rows."""

    of: Input
    ttl_ms: int | None
    stored: list[Stored] = field(default_factory=list)

    def key(self, row: Row) -> Row | None:
        """The key of the row; None where it is NULL."""
        key = tuple(row[column] for column in self.of.table.key)
        return None if None in key else key

    def expire(self, now: int) -> None:
        """Forget the rows whose time has come."""
        if self.ttl_ms is not None:
            self.stored = [one for one in self.stored if one.written_at + self.ttl_ms > now]

    def apply(self, batch: Sequence[Change], now: int) -> None:
        """Replace the rows by those after the batch; a row that goes and comes back equal stays, with a new time."""
        before = list(self.stored)
        after = list(before)
        for change in sorted(batch, key=self._order):
            old = [one for one in after if self._identity(one.row) == self._identity(change.row)]
            old.sort(key=lambda one: (one.written_at, one.seq))
            single = self._identity(change.row)[1]
            if change.sign > 0:
                after = [one for one in after if not (single and one in old)]
                after.append(Stored(change.row, now, change.seq))
            elif old:
                after.remove(old[0])
        gone = sorted((one for one in before if one not in after), key=lambda one: (one.written_at, one.seq))
        for one in sorted((one for one in after if one not in before), key=lambda one: (one.written_at, one.seq)):
            for other in gone:
                if other.row == one.row:
                    gone.remove(other)
                    after[after.index(one)] = other
                    other.written_at, other.seq = now, one.seq
                    break
        self.stored = after

    def _order(self, change: Change) -> tuple[int, ...]:
        if self.of.by_seq:
            return change.seq, change.sign
        return (change.sign if self._identity(change.row)[1] else -change.sign), change.seq

    def _identity(self, row: Row) -> tuple[object, bool]:
        sub_key = tuple(row[column] for column in self.of.table.sub_key)
        if self.of.layout == "multiset" or (self.key(row) is None and not sub_key):
            return row, False
        return (self.key(row), sub_key), True


class NaiveJoin:
    """The join of two inputs on equal keys and the condition, which is about payloads."""

    def __init__(self, kind: JoinKind, left: NaiveSide, right: NaiveSide, condition: Condition) -> None:
        self.left, self.right, self._condition = left, right, condition
        self.pads_left, self.pads_right = kind in ("left", "full"), kind in ("right", "full")

    def process(self, batch: Sequence[Change], now: int) -> Counter[Row]:
        """Apply one batch; returns the net output, rows with their signed number."""
        left, right = self.left, self.right
        for side in (left, right):
            side.expire(now)
        old_left, old_right = list(left.stored), list(right.stored)
        old_pairs = self._pairs()
        for number, side in enumerate((left, right)):
            side.apply([change for change in batch if change.side == number], now)
        output = Counter[Row]()
        output.update(self._pairs())
        output.subtract(old_pairs)
        if self.pads_left:
            for one, sign in _pad_steps(left, old_left, right, old_right, self._match):
                output[left.of.table.project(one.row) + _nulls(right)] += sign
        if self.pads_right:
            for one, sign in _pad_steps(right, old_right, left, old_left, lambda one, other: self._match(other, one)):
                output[_nulls(left) + right.of.table.project(one.row)] += sign
        return Counter({row: count for row, count in output.items() if count})

    def _pairs(self) -> Counter[Row]:
        left, right = self.left, self.right
        return Counter(
            left.of.table.project(one.row) + right.of.table.project(other.row)
            for one in left.stored
            for other in right.stored
            if self._match(one, other)
        )

    def _match(self, one: Stored, other: Stored) -> bool:
        key = self.left.key(one.row)
        return key is not None and key == self.right.key(other.row) and self._condition(one.row, other.row)


def _pad_steps(
    outer: NaiveSide, old_outer: list[Stored], inner: NaiveSide, old_inner: list[Stored], match: Match
) -> list[tuple[Stored, int]]:
    """The pads that come (+1) and go (-1), noted in the rows."""
    steps = []
    for one in {*old_outer, *outer.stored}:
        before = one.padded
        if one not in outer.stored:
            one.padded = False
        elif one not in old_outer:
            one.padded = not any(match(one, other) for other in inner.stored)
        else:
            one.padded = not any(match(one, other) for other in inner.stored) and (
                before or any(match(one, other) for other in old_inner)
            )
        if one.padded != before:
            steps.append((one, 1 if one.padded else -1))
    return steps


def _nulls(side: NaiveSide) -> Row:
    return tuple(None for _ in side.of.table.payload)
