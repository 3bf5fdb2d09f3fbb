"""The definition of the join with a clock: row by row, with everything recomputed in every batch.

If no TTL expires, the definition is plain SQL. With expiry, four rules apply (see also `operators.join.join`). An
expired row is invisible and does not match. Output that it caused stays until the row itself is retracted. A
null-padded row that was retracted because of a match is not restored when that match expires. An output row is
refreshed if it is made of a row written in this batch, or if it is both retracted and inserted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rowkind.operators.join.join import JoinKind
from tests.changelogs import Change, Row
from tests.oracle.inputs import Input, netted

Condition = Callable[[Row, Row], bool]


@dataclass(eq=False)
class Stored:
    """A row of one input, when it was last written, and whether its null-padded row is in the output."""

    row: Row
    written_at: int
    seq: int
    padded: bool = False


Match = Callable[[Stored, Stored], bool]


@dataclass
class NaiveSide:
    """One input: its layout, the TTL of its rows, and the rows."""

    of: Input
    ttl_ms: int | None
    stored: list[Stored] = field(default_factory=list)

    def key(self, row: Row) -> Row | None:
        """Return the key of the row, or None if it is NULL."""
        key = tuple(row[column] for column in self.of.table.key)
        return None if None in key else key

    def expire(self, now: int) -> None:
        """Drop the rows whose TTL has expired."""
        if self.ttl_ms is not None:
            self.stored = [one for one in self.stored if one.written_at + self.ttl_ms > now]

    def apply(self, batch: Sequence[Change], now: int) -> list[Stored]:
        """Apply a batch; a row that is retracted and inserted again unchanged stays, with a new time.

        Return the rows of retractions that matched nothing.
        """
        before = list(self.stored)
        after = list(before)
        unmatched = []
        batch, again = (batch, []) if self.of.by_seq else netted(batch, lambda row: self._identity(row)[1])
        for change in sorted((change for change in batch if change.sign), key=self._order):
            old = [one for one in after if self._identity(one.row) == self._identity(change.row)]
            old.sort(key=lambda one: (one.written_at, one.seq))
            single = self._identity(change.row)[1]
            if change.sign > 0:
                after = [one for one in after if not (single and one in old)]
                after.append(Stored(change.row, now, change.seq))
            elif old:
                after.remove(old[0])
            else:
                unmatched.append(Stored(change.row, now, change.seq))
        gone = sorted((one for one in before if one not in after), key=lambda one: (one.written_at, one.seq))
        for one in sorted((one for one in after if one not in before), key=lambda one: (one.written_at, one.seq)):
            for other in gone:
                if other.row == one.row:
                    gone.remove(other)
                    after[after.index(one)] = other
                    other.written_at, other.seq = now, one.seq
                    break
        for row, count in Counter([*again, *(change.row for change in batch if not change.sign)]).items():
            equal = sorted((one for one in after if one.row == row), key=lambda one: (one.written_at, one.seq))
            for one in equal[:count]:
                one.written_at = now
        self.stored = after
        return unmatched

    def _order(self, change: Change) -> tuple[int, ...]:
        if self.of.by_seq:
            return change.seq, change.sign
        return (change.sign if self._identity(change.row)[1] else -change.sign), change.seq

    def _identity(self, row: Row) -> tuple[object, bool]:
        sub_key = tuple(row[column] for column in self.of.table.sub_key)
        if self.of.layout == "multiset" or (self.key(row) is None and not sub_key):
            return row, False
        return (self.key(row), sub_key), True


@dataclass
class Steps:
    """The changes of a batch: how often each row is inserted, retracted, or kept while an input was written."""

    come: Counter[Row] = field(default_factory=Counter)
    gone: Counter[Row] = field(default_factory=Counter)
    kept: Counter[Row] = field(default_factory=Counter)

    @classmethod
    def between(cls, before: Iterable[Stored], after: Iterable[Stored], now: int) -> Steps:
        """Return the difference between two sets of rows; a row that stays and was written now is refreshed."""
        steps, old, new = cls(), {id(one): one for one in before}, {id(one): one for one in after}
        for at, one in (old | new).items():
            steps.add(one.row, was=at in old, is_=at in new, written=one.written_at == now)
        return steps

    def add(self, row: Row, *, was: bool, is_: bool, written: bool) -> None:
        """Count a row that was in the output before, is in it now, or both."""
        if was and is_:
            self.kept[row] += written
        else:
            self.gone[row] += was
            self.come[row] += is_

    @property
    def net(self) -> Counter[Row]:
        """Return each changed row with its signed count."""
        return Counter({row: count for row in self.come | self.gone if (count := self.come[row] - self.gone[row])})

    @property
    def refreshed(self) -> Counter[Row]:
        """Return how often each row is refreshed."""
        return +(self.kept + (self.come & self.gone))


@dataclass
class _Sides:
    """One side's rows in a batch: visible before it, visible after it, and retracted although already expired."""

    old: list[Stored]
    new: list[Stored]
    late: list[Stored]


class NaiveJoin:
    """The join of two inputs on equal keys and a condition on the payloads."""

    def __init__(self, kind: JoinKind, left: NaiveSide, right: NaiveSide, condition: Condition) -> None:
        self.left, self.right, self._condition = left, right, condition
        self.pads_left, self.pads_right = kind in ("left", "full"), kind in ("right", "full")
        self.expired = 0
        self.late_left: list[tuple[Stored, bool]] = []

    def process(self, batch: Sequence[Change], now: int) -> Steps:
        """Apply one batch.

        Afterwards `expired` is the number of retractions of rows that had already expired. `late_left` has those of the
        left side, each with whether no visible row matched it.
        """
        left, right = (self._apply(number, batch, now) for number in (0, 1))
        self.expired = len(left.late) + len(right.late)
        self.late_left = [(one, not any(self.match(one, other) for other in right.old)) for one in left.late]
        steps = Steps()
        before = (
            self._pairs(left.old, right.old) | self._pairs(left.late, right.old) | self._pairs(left.old, right.late)
        )
        after = self._pairs(left.new, right.new)
        for pair, (one, other) in (before | after).items():
            written = now in (one.written_at, other.written_at)
            row = self.left.of.table.project(one.row) + self.right.of.table.project(other.row)
            steps.add(row, was=pair in before, is_=pair in after, written=written)
        if self.pads_left:
            for one, was in _pads(left, right, self.match):
                row = self.left.of.table.project(one.row) + _nulls(self.right)
                steps.add(row, was=was, is_=one.padded, written=one.written_at == now)
        if self.pads_right:
            for one, was in _pads(right, left, lambda one, other: self.match(other, one)):
                row = _nulls(self.left) + self.right.of.table.project(one.row)
                steps.add(row, was=was, is_=one.padded, written=one.written_at == now)
        return steps

    def _apply(self, number: int, batch: Sequence[Change], now: int) -> _Sides:
        side = (self.left, self.right)[number]
        side.expire(now)
        old = list(side.stored)
        unmatched = side.apply([change for change in batch if change.side == number], now)
        return _Sides(old, side.stored, unmatched if side.ttl_ms is not None else [])

    def _pairs(self, left: list[Stored], right: list[Stored]) -> dict[tuple[int, int], tuple[Stored, Stored]]:
        return {(id(one), id(other)): (one, other) for one in left for other in right if self.match(one, other)}

    def match(self, one: Stored, other: Stored) -> bool:
        """Return whether a left and a right row match."""
        key = self.left.key(one.row)
        return key is not None and key == self.right.key(other.row) and self._condition(one.row, other.row)


def _pads(outer: _Sides, inner: _Sides, match: Match) -> list[tuple[Stored, bool]]:
    """Return the outer rows with whether their null-padded row was in the output, and update the mark in the rows.

    The mark of a row that is retracted after it expired is not kept. Its null-padded row counts as emitted if no
    visible row matched.
    """
    found = []
    for one in {*outer.old, *outer.new, *outer.late}:
        was = one.padded
        matches = any(match(one, other) for other in inner.new)
        if one in outer.late:
            was, one.padded = not any(match(one, other) for other in inner.old), False
        elif one not in outer.new:
            one.padded = False
        elif one not in outer.old:
            one.padded = not matches
        else:
            lost = any(match(one, other) for other in [*inner.old, *inner.late])
            one.padded = not matches and (was or lost)
        found.append((one, was))
    return found


def _nulls(side: NaiveSide) -> Row:
    return tuple(None for _ in side.of.table.payload)
