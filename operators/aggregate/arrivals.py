"""Arrivals: values with their arrival numbers, so that FIRST and LAST can be computed as minimum and maximum.

An arrival consists of the arrival number of the change that inserted the value, as 8 comparable bytes, followed by the
value. A retraction has the value, but not the arrival number of the row to retract; `settled` finds this number. If
several rows have equal values, the oldest row is retracted first, as in all operators and in Flink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, concat_binary
from rowkind.operators.columns.grouping import group, to_mask
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.packed_columns import fixed_width, without_first

_WIDTH = 8
_SIGN = np.int64(-(1 << 63))


def arrivals(seq: Int64s, values: pa.BinaryArray) -> pa.BinaryArray:
    """Prefix values with their arrival numbers. NULL remains NULL."""
    return pc.binary_join_element_wise(fixed_width((seq ^ _SIGN).byteswap(), _WIDTH, len(seq)), values, b"")


def arrived(column: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values of arrivals, without the arrival numbers. NULL remains NULL."""
    if not column.null_count:
        return without_first(column, _WIDTH)
    there = to_mask(column.is_valid())
    return without_first(column.drop_null(), _WIDTH).take(pa.array(np.cumsum(there) - 1, mask=~there))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals, the group of each, and how many times each is stored or inserted; negative if it is retracted."""

    group: Indices
    value: pa.BinaryArray
    times: Int64s


def settled(changes: Arrivals, stored: Arrivals) -> Arrivals:
    """Return the changes, in which each retraction is resolved to the oldest arrival with the same value.

    `stored` contains the stored arrivals of the retracted values. Retractions for which there is no arrival are
    omitted.
    """
    came = np.flatnonzero(changes.times > 0)
    value = concat_binary([stored.value, changes.value.take(pa.array(came))])
    owner = np.concatenate([stored.group, changes.group[came]])
    times = np.concatenate([stored.times, changes.times[came]])
    there = len(owner)
    of_all = np.concatenate([owner, changes.group])
    content = without_first(concat_binary([value, changes.value]), _WIDTH)
    same = group(mix(of_all.astype(np.uint64), hash64(content)), [of_all, content])
    wanted = np.zeros(same.count, np.int64)
    np.add.at(wanted, same.ids[there:], np.maximum(-changes.times, 0))
    # Sort the arrivals of each value, oldest first. `before` is the number of older arrivals of the same value, and
    # `goes` is how many times the arrival is retracted.
    order = np.lexsort((_numbers(value), same.ids[:there]))
    of, amount = same.ids[:there][order], times[order]
    total = np.cumsum(amount) - amount
    first = np.concatenate((np.ones(min(1, there), np.bool_), of[1:] != of[:-1]))
    before = total - total[first][np.cumsum(first) - 1]
    goes = np.clip(wanted[of] - before, 0, amount)
    gone = np.flatnonzero(goes)
    rows = order[gone]
    return Arrivals(
        np.concatenate([changes.group[came], owner[rows]]),
        concat_binary([changes.value.take(pa.array(came)), value.take(pa.array(rows))]),
        np.concatenate([changes.times[came], -goes[gone]]),
    )


def _numbers(column: pa.BinaryArray) -> Int64s:
    """Return the arrival numbers of arrivals."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    words = data[offsets[:-1, None] + np.arange(_WIDTH)].copy().view(np.int64)[:, 0]
    numbers: Int64s = words.byteswap() ^ _SIGN
    return numbers
