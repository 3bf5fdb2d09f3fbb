"""Local top-k: before the shuffle, each task drops rows that cannot be in a rank's range.

In a task's part of a batch, most rows of a partition rank after at least `last` other rows. They also rank after these
rows in the whole partition, so they are not sent. Even if a partition contains a tenth of all rows, or all rows because
there is no PARTITION BY, each task sends only a few of its rows. This is valid only if a dropped row can never be
needed later: either rows are only inserted (strategy `append`), or rows keep their identity and only improve (strategy
`improving`). ROW_NUMBER breaks ties by arrival if the order key is empty; in all other cases, all tied rows are sent.

The step works like a combiner in MapReduce. Flink SQL has no local step for a streaming Top-N.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Uint64s, lengths
from rowkind.operators.columns.grouping import Groups, distinct, group
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.columns.order_code import BITS, order_code
from rowkind.operators.rank.ranking import Ranking

WORTH = 0.5
"""The largest fraction of a task's inserted rows that the step may send.

If the estimate, from the number of partitions, exceeds this fraction, the step is skipped.
"""

_MOST_PARTITIONS = 1 << (64 - BITS)


def local_top_k(
    ranking: Ranking, changes: Changes, identity: Callable[[pa.BinaryArray], pa.BinaryArray] | None = None
) -> Changes:
    """Return the changes that may affect a bounded rank of strategy `append` or, with an identity, `improving`.

    `identity` returns the bytes of each payload's unique key, as in `RankSpec`. A retraction is kept if the latest
    insertion with the same unique key is kept, or if there is no insertion with this key.
    """
    come = np.flatnonzero(changes.weight > 0)
    hashes = changes.hash[come]
    partitions = len(distinct(hashes))
    assert ranking.last is not None, "without `last`, every row may be in the range"
    if partitions * ranking.last > WORTH * len(come) or len(come) >= _MOST_PARTITIONS:
        return changes
    if identity is None:
        stays = np.ones(len(changes), np.bool_)
        stays[come] = _may_reach(ranking, changes, come)
        return changes.filter(stays)
    keys = identity(changes.payload)
    rows = group(hash64(keys), [keys])
    newest = _newest(rows, changes.seq, come)
    stays = np.ones(rows.count, np.bool_)
    stays[rows.ids[newest]] = _may_reach(ranking, changes, newest)
    return changes.filter(stays[rows.ids])


def _newest(rows: Groups, seq: Int64s, come: Indices) -> Indices:
    """Return the latest inserted row of each group that contains one; `come` contains the inserted rows."""
    in_order = come[np.argsort(seq[come], kind="stable")]
    latest = np.full(rows.count, -1)
    latest[rows.ids[in_order]] = in_order
    return latest[latest >= 0]


def _may_reach(ranking: Ranking, changes: Changes, rows: Indices) -> Mask:
    """Return a mask of the rows that rank before or are tied with the range's last row, among the given rows."""
    assert ranking.last is not None, "only a bounded rank has a local top-k"
    of = group(changes.hash[rows], [changes.key.take(pa.array(rows))])
    partition = of.ids.astype(np.uint64) << np.uint64(BITS)
    place = partition | _place(ranking, changes, rows)
    ascending = distinct(place) if ranking.function == "dense_rank" else np.sort(place)
    counts = np.bincount((ascending >> np.uint64(BITS)).astype(np.int64), minlength=of.count)
    last = np.cumsum(counts) - counts + np.minimum(counts, ranking.last) - 1
    result: Mask = place <= ascending[last][of.ids]
    return result


def _place(ranking: Ranking, changes: Changes, rows: Indices) -> Uint64s:
    """Return a number of `BITS` bits for each row. A row with a smaller number never ranks after another row."""
    sub_key = changes.sub_key.take(pa.array(rows))
    if lengths(sub_key).any() or ranking.function != "row_number":
        return order_code(sub_key)
    arrival = changes.seq[rows] if ranking.ties == "earliest first" else ~changes.seq[rows]
    ascending = np.sort(arrival)
    return np.searchsorted(ascending, arrival).astype(np.uint64)
