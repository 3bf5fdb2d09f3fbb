"""First rows: the row with ROW_NUMBER 1 of each partition of an insert-only input.

Maintains one row per partition, the least by (order key, arrival, payload), in layout *last write*. An inserted row has
no effect unless it is less than the partition's stored row and all of its other inserted rows. So for each batch, the
operator looks up the partitions' stored rows, finds each partition's least row, and writes the rows that are new. No
rows are numbered, and no second row can move up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.summing import in_order
from rowkind.operators.columns.changes import Indices, Int64s, Mask, concat_binary, lengths
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.order_code import order_code
from rowkind.operators.rank.ranking import Ties
from rowkind.operators.rank.rows import byte_ranks

Measure = Callable[[Indices], Int64s]
"""A function that returns a number for each of the given rows; rows with smaller numbers rank first."""


class FirstRowStep(NamedTuple):
    """The changes to first rows: retracted rows with weight -1, and inserted rows with weight 1."""

    payload: pa.BinaryArray
    seq: Int64s
    weight: Int64s


def replace_first(arrangement: Arrangement, gone: Entries, come: Entries, ties: Ties) -> FirstRowStep:
    """Apply retracted and inserted rows to the arrangement, and return the changes to its rows.

    The retracted rows must be stored.
    """
    stored = arrangement.lookup(np.concatenate([gone.hash, come.hash]))
    before, count = len(stored), len(stored) + len(come)
    hashes = np.concatenate([stored.hash, come.hash, gone.hash])
    groups = group(hashes, [concat_binary([stored.key, come.key, gone.key])])
    there = np.full(groups.count, -1)
    there[groups.ids[:before]] = np.arange(before)
    left = there.copy()
    left[groups.ids[count:]] = -1
    first = np.full(groups.count, -1)
    least = _first(
        np.concatenate([left[left >= 0], np.arange(before, count)]), groups.ids, _measures(stored, come, ties)
    )
    first[groups.ids[least]] = least
    old, new = there[there != first], first[there != first]
    ends, old, new = old[(old >= 0) & (new < 0)], old[old >= 0], new[new >= 0] - before
    added = come.take(new[in_order(come.place[new], come.seq[new])])
    arrangement.replace(Entries.concat([added, -stored.take(ends)]), len(old))
    payload = concat_binary([stored.payload.take(pa.array(old)), added.payload])
    weight = np.repeat(np.array([-1, 1]), [len(old), len(added)])
    return FirstRowStep(payload, np.concatenate([stored.seq[old], added.seq]), weight)


def _first(rows: Indices, of: Indices, measures: Iterator[Measure]) -> Indices:
    """Return the first of the given rows in each group; `of` contains each row's group."""
    rows, found = rows[np.argsort(of[rows])], []
    for measure in measures:
        same = of[rows][1:] == of[rows][:-1]
        contested = (np.append(same, False) | np.insert(same, 0, False))[: len(rows)]
        found.append(rows[~contested])
        rows = rows[contested]
        if len(rows) == 0:
            break
        rows = rows[_least(of[rows], measure(rows))]
    return np.concatenate([*found, rows])


def _measures(stored: Entries, come: Entries, ties: Ties) -> Iterator[Measure]:
    """Yield measures, each of which breaks the previous measures' ties.

    Stored rows are numbered before inserted rows.
    """
    sub_key, seq = concat_binary([stored.sub_key, come.sub_key]), np.concatenate([stored.seq, come.seq])
    if lengths(sub_key).any():
        yield lambda rows: order_code(sub_key.take(pa.array(rows))).astype(np.int64)
        yield lambda rows: byte_ranks(sub_key.take(pa.array(rows)))
    yield lambda rows: seq[rows] if ties == "earliest first" else ~seq[rows]
    yield lambda rows: byte_ranks(concat_binary([stored.payload, come.payload]).take(pa.array(rows)))
    yield lambda rows: rows


def _least(owner: Indices, numbers: Int64s) -> Mask:
    """Return a mask of the rows with the least number in their group; a group's rows must be adjacent."""
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    least = np.minimum.reduceat(numbers, starts)
    result: Mask = numbers == np.repeat(least, np.diff(np.append(starts, len(owner))))
    return result
