"""The first row of each partition, where rows only come: what is left of a rank by ROW_NUMBER from 1 to 1.

Maintains one row per partition, the least by (order key, arrival, payload), in layout *replacing*. A row that comes and
is not less than what is there, or than another that comes, leaves no trace; so a batch looks its partitions up, finds
the least row of each and writes those that are new. There is nothing to number and nothing that could move up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from operators.arrangement import Arrangement
from operators.changes import Indices, Int64s, Mask, concat_binary
from operators.entries import Entries
from operators.grouping import group
from operators.join_output import lengths
from operators.order_code import order_code
from operators.rank_rows import Ties, byte_ranks


def replace_first(arrangement: Arrangement, gone: Entries, come: Entries, ties: Ties) -> tuple[Entries, Entries]:
    """Change the arrangement by rows that go, which are there, and rows that come; its rows that go, and that come."""
    hashes = [part.hash for part in (gone, come)]
    stored = arrangement.lookup(np.concatenate(hashes))
    before, rows = len(stored), Entries.concat([stored, come])
    groups = group(np.concatenate([rows.hash, gone.hash]), [concat_binary([rows.key, gone.key])])
    of_row = groups.ids[: len(rows)]
    there = np.full(groups.count, -1)
    there[of_row[:before]] = np.arange(before)
    left = there.copy()
    left[groups.ids[len(rows) :]] = -1
    candidates = np.concatenate([left[left >= 0], np.arange(before, len(rows))])
    first = np.full(groups.count, -1)
    least = _first(candidates, of_row, rows, ties)
    first[of_row[least]] = least
    old, new = there[there != first], first[there != first]
    ends = old[(old >= 0) & (new < 0)]
    replaced, added = rows.take(old[old >= 0]), rows.take(new[new >= 0])
    arrangement.replace(Entries.concat([added, -rows.take(ends)]), len(replaced))
    return replaced, added


def _first(rows: Indices, of: Indices, entries: Entries, ties: Ties) -> Indices:
    """The first of these rows of each group; `of` tells the groups of all entries."""
    rows, found = rows[np.argsort(of[rows])], []
    for measure in _measures(entries, ties):
        same = of[rows][1:] == of[rows][:-1]
        contested = (np.append(same, False) | np.insert(same, 0, False))[: len(rows)]
        found.append(rows[~contested])
        rows = rows[contested]
        if len(rows) == 0:
            break
        rows = rows[_least(of[rows], measure(rows))]
    return np.concatenate([*found, rows])


def _measures(entries: Entries, ties: Ties) -> Iterator[Callable[[Indices], Int64s]]:
    """Numbers of rows, less for rows further in front: each decides where those before do not, the last one always."""
    if lengths(entries.sub).any():
        yield lambda rows: order_code(entries.sub.take(pa.array(rows))).astype(np.int64)
        yield lambda rows: byte_ranks(entries.sub.take(pa.array(rows)))
    yield lambda rows: entries.seq[rows] if ties == "earliest first" else ~entries.seq[rows]
    yield lambda rows: byte_ranks(entries.payload.take(pa.array(rows)))
    yield lambda rows: rows


def _least(owner: Indices, numbers: Int64s) -> Mask:
    """Which rows have the least number of their group; the rows of a group stand together."""
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    least = np.minimum.reduceat(numbers, starts)
    result: Mask = numbers == np.repeat(least, np.diff(np.append(starts, len(owner))))
    return result
