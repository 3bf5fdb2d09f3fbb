"""Time bounds of a join: how far apart the times of matching rows may be, and how long rows must therefore be kept.

    b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '10' MINUTE       earliest -5 min, latest 10 min
    a.ts < b.ts + INTERVAL '1' HOUR                                              earliest -1 hour, exclusive
    a.ts = b.ts                                                                  both 0
    CAST(b.ts AS DATE) = a.day                                                   earliest 0, latest a day, exclusive

A join whose conditions bound the time of one side by that of the other is an **interval join**. It is an ordinary join,
but its rows need not be kept indefinitely, and after some time, an unmatched row can no longer find a match.

Let W be the common watermark of both sides' tables, and a and b the times of a left and a right row, in microseconds.
The two rows match only if

    a + e <= b <= a + l

A column may lag behind the watermark: except for late rows, no further row of a side has a time before W - s, where s
is that side's slack, s_a or s_b (`traits.event_times`). So a row a finds no further on-time match once W > a + l + s_b.
Until then the row is accepted, however late it is itself, and it is always accepted while it is on time. That is, a
change of a is **late** once

    W > a + L_a,    L_a = max(s_a, l + s_b)             and mirrored    W > b + L_b,    L_b = max(s_b, s_a - e)

Every change on the other side that is not late must still find a, if the changed row matches a. A matching b is at most
a + l, and its changes are accepted as long as W <= b + L_b. So a has **settled**, that is, no match of a is inserted or
retracted any more, once

    W > a + S_a,    S_a = max(L_a, l + L_b)             and mirrored    W > b + S_b,    S_b = max(L_b, L_a - e)

From then on, the row need not be **kept**, unless matches are counted. Matches are counted if rows without a match are
null-padded, emitted or dropped. In that case, evicting a row would lose a match of another row whose other matches may
still change. So a row must be kept until all rows that it may match have settled. The rows a that b matches are at most
b - e, so

    K_b = max(S_b, S_a - e)  if left rows are padded or filtered    K_a = max(S_a, l + S_b)  if right rows are padded

and K = S otherwise. (Without slack, and with e <= 0 <= l and d = l - e: S is d for both sides, K_b is d - e, and K_a is
d + l.)

If there is only an earliest bound, a left row may find matches indefinitely. Only its own slack makes it late (L_a =
s_a). It never settles, and is kept indefinitely. A right row still settles, because left rows are accepted only while
they are on time. With a latest bound alone, the same applies with the sides exchanged. If the matches of rows that
never settle are counted, no row is evicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Type
from rowkind.service.physical.clocks import TimeBounds
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.time_windows import DAY
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.syntax import sql_text

_MIRRORED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_MONTH = (28 * DAY, 31 * DAY)
"""The lengths of the shortest and the longest month, in microseconds."""


@dataclass(frozen=True)
class Stay:
    """The lengths of time after a row's time, in microseconds, at which a watermark affects the rows of one side.

    Once the watermark has passed the row's time plus `late`, changes of the row are late. Once the watermark has passed
    the time plus `settled`, the row's matches no longer change. Once the watermark has passed the time plus `kept`, the
    row is evicted. None means never.
    """

    late: int
    settled: int | None
    kept: int | None


def time_bounds(join: LogicalJoin, left: AbstractSet[str], right: AbstractSet[str]) -> tuple[TimeBounds, ...]:
    """Return the bounds that a join's conditions and keys set between `left` and `right` columns, tightest first."""
    found: dict[tuple[str, str], TimeBounds] = {}
    keys = (exp.EQ(this=key.left, expression=key.right) for key in join.keys if not key.null_safe)
    for each in (*join.condition, *keys):
        for bounds in _compared(each.unnest(), left, right):
            pair = bounds.left, bounds.right
            found[pair] = found[pair].within(bounds) if pair in found else bounds
    return tuple(sorted(found.values(), key=_width))


def stays_of(join: LogicalJoin, bounds: TimeBounds, slacks: tuple[int, int]) -> tuple[Stay, Stay]:
    """Return how a watermark affects left and right rows.

    `slacks` are how far, in microseconds, the times of further left and right rows may be before the watermark.
    """
    s_a, s_b = slacks
    earliest, latest = bounds.earliest, bounds.latest
    late_a = s_a if latest is None else max(s_a, latest + s_b)
    late_b = s_b if earliest is None else max(s_b, s_a - earliest)
    settled_a = None if latest is None else max(late_a, latest + late_b)
    settled_b = None if earliest is None else max(late_b, late_a - earliest)
    kept_a, kept_b = settled_a, settled_b
    if join.pads_left or join.keeps_left:
        kept_b = None if earliest is None or settled_a is None else max(settled_b or late_b, settled_a - earliest)
    if join.pads_right:
        kept_a = None if latest is None or settled_b is None else max(settled_a or late_a, latest + settled_b)
    return Stay(late_a, settled_a, kept_a), Stay(late_b, settled_b, kept_b)


def _width(bounds: TimeBounds) -> tuple[bool, int]:
    if bounds.earliest is None or bounds.latest is None:
        return True, 0
    return False, bounds.latest - bounds.earliest


def _compared(node: exp.Expr, left: AbstractSet[str], right: AbstractSet[str]) -> Iterator[TimeBounds]:
    """Yield the bounds that one condition sets on the distance between two times."""
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        yield from _ordered(node.this, exp.GTE, low, left, right)
        yield from _ordered(node.this, exp.LTE, high, left, right)
    elif isinstance(node, exp.Binary) and type(node) in _MIRRORED:
        yield from _ordered(node.left, type(node), node.right, left, right)


def _ordered(
    one: exp.Expr, operator: type[exp.Expr], other: exp.Expr, left: AbstractSet[str], right: AbstractSet[str]
) -> Iterator[TimeBounds]:
    a, b = _Time.of(one), _Time.of(other)
    if a is None or b is None:
        return
    if a.column in right:
        a, b, operator = b, a, _MIRRORED[operator]
    if a.column not in left or b.column not in right:
        return
    # Compare a + (a.low .. a.high) with b + (b.low .. b.high).
    short = 1 if operator in (exp.LT, exp.GT) else 0
    if operator in (exp.LT, exp.LTE, exp.EQ):
        yield TimeBounds(a.column, b.column, earliest=a.low - b.high + short)
    if operator in (exp.GT, exp.GTE, exp.EQ):
        yield TimeBounds(a.column, b.column, latest=a.high - b.low - short)


@dataclass(frozen=True)
class _Time:
    """A time from a column's value plus `low` to the value plus `high`, in microseconds."""

    column: str
    low: int = 0
    high: int = 0

    @classmethod
    def of(cls, node: exp.Expr) -> _Time | None:
        """Return the time that an expression computes; None for any other expression."""
        node = node.unnest()
        match node:
            case exp.Column():
                return cls(node.name)
            case exp.Cast():
                return cls._cast(cls.of(node.this), node)
            case exp.Add() | exp.Sub():
                return cls._moved(node)
        return None

    @classmethod
    def _cast(cls, time: _Time | None, node: exp.Cast) -> _Time | None:
        try:
            to = family(Type.of(sql_text(node.to)))
        except SchemaError:
            return None
        if time is None or to in ("timestamp", "local"):
            return time
        return replace(time, low=time.low - DAY + 1) if to == "date" else None

    @classmethod
    def _moved(cls, node: exp.Add | exp.Sub) -> _Time | None:
        moment, length = node.left.unnest(), node.right.unnest()
        if isinstance(node, exp.Add) and moment.find(exp.Column) is None:
            moment, length = length, moment
        time = cls.of(moment)
        if time is None or length.find(exp.Interval) is None or length.find(exp.Column) is not None:
            return None
        try:
            months, days, rest = amount(length)
        except Refusal:
            return None
        if isinstance(node, exp.Sub):
            months, days, rest = -months, -days, -rest
        by = days * DAY + rest
        of_months = sorted(months * each for each in _MONTH)
        return replace(time, low=time.low + of_months[0] + by, high=time.high + of_months[1] + by)
