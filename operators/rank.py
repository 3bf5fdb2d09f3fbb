"""Rank: the rows of each partition whose ROW_NUMBER, RANK or DENSE_RANK lies in a range, with the number or without.

Maintains, of the multiset of its input's rows, those with first <= number <= last, counted per partition in the order
of the order key. Equal order keys: ROW_NUMBER puts the earlier arrival first (by seq, then by payload) or, told so by
`ties`, the later one; the other two give equal numbers. One arrangement, "rows", in layout *ordered*: rows by partition
and order key. A deduplication is ROW_NUMBER 1: the first or the last row by a time, or by arrival where all are ties.

The walk. Changes are resolved to rows that come and go; what else of the touched partitions matters is looked up; the
rows are put in order once and numbered twice, without those that come and without those that go; the difference is
emit. Without the number in the output a row has changed where it entered or left the range; with it, where its
number did.

Strategies, as the plan picks them by what it knows of the input:

    append      rows only come. State: rows with number <= last; no other can reach the range any more.
    improving   rows are identified by a unique key, within one partition; an update never makes the order key larger,
                and none is deleted for good. State: rows with RANK <= last; with ROW_NUMBER too, because an update
                that keeps the order key may still put its row behind its ties. Not for DENSE_RANK, whose numbers
                shrink when two rows become ties.
    retract     anything. State: all rows. A partition is read from its first row on, as far as the range and what is
                gone from it demand, and never beyond. Rows that share an order code are read together, but of very many
                ties ROW_NUMBER reads only the first. RANK and DENSE_RANK number all ties alike, and so read them all.
                To find a retracted row among ties, the payloads of all of these are compared: 25 ms for a million.

A row that was dropped, because it could not reach the range, is not there to be retracted: with `append` such a
retraction is unmatched, with `improving` no retraction ever is.

Where a partition keeps a single row, as with `append` and ROW_NUMBER up to 1, there is no more to it: the arrangement
is in layout *last write* and the walk is `operators.first_row`.

Expiry. A row is invisible from written_at + TTL on: it counts no more, and what was emitted because of it stays, as in
Flink. What follows it moves up when something in the partition changes, not before. So with a TTL the numbers of the
visible rows do not tell what is in the output, and each row's mark keeps it: the number under which it is out, or 1
where numbers are not emitted; 0 where it is not out. A retraction of a row that has expired is unmatched, whatever it
was the reason for, as in Flink.

A row that is written again goes and comes. So does one that is refreshed, which keeps its arrival and with that its
number. Where that leaves it under the number under which it is out, nothing is emitted but, where somebody further down
has a TTL, a refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Layout
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.resolving import Resolved, replace_among, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.changes import Changes, Indices, Int8s, Int64s, Mask, Rows
from rowkind.operators.columns.grouping import distinct, is_in
from rowkind.operators.first_row import replace_first
from rowkind.operators.netting import net_rows
from rowkind.operators.operator import Output
from rowkind.operators.rank_rows import Candidates, RankOrder, Touched
from rowkind.operators.ranking import RankFunction, Ranking

Strategy = Literal["append", "improving", "retract"]

MARGIN = 8
"""Rows read of a partition beyond the range, so that a few that are gone make no second reading necessary."""

_LARGEST_MARK = 127


@dataclass(frozen=True, slots=True)
class RankSpec:
    """What a rank computes, and what the plan must provide for it.

    Of the changes, all of side 0:

    - `key`: comparable bytes of the PARTITION BY columns, null safe: never null, all NULLs are one partition. Without
      PARTITION BY, one constant, the same in every row.
    - `sub_key`: comparable bytes of the ORDER BY columns, directions and NULLS FIRST / LAST as SQL has them. Empty
      where all rows are ties. The columns need not be in the payload.
    - `seq`: arrival, as scans and operators number it.
    - `kind`: `append`: +I and +U. `improving`: +I and +U, each of which replaces the row with its unique key; -U and -D
      may be there where an insertion of the same unique key is in the same batch. `retract`: every retraction carries
      the full row that it takes back, so an upsert input must be normalised first.

    Of this spec:

    - `numbered` makes output rows of payloads and their numbers; None where the query does not use the number.
    - `identity` gives the unique key's bytes of payloads; for `improving` only. The partition must not change while the
      unique key stays.
    - `by_seq`: the changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset
      of signed rows (an operator).
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `ttl_ms`: with it and with `numbered`, `last` is 127 at most.
    - `refreshes`: whether somebody further down has a TTL.
    """

    ranking: Ranking
    strategy: Strategy
    numbered: Callable[[pa.BinaryArray, Int64s], pa.BinaryArray] | None = None
    identity: Callable[[pa.BinaryArray], pa.BinaryArray] | None = None
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    refreshes: bool = False

    def __post_init__(self) -> None:
        assert (self.identity is not None) == (self.strategy == "improving"), "improving rows have a unique key"
        assert self.ranking.function != "dense_rank" or self.strategy != "improving", (
            "dense ranks shrink when rows improve"
        )
        assert self.ttl_ms is None or self.numbered is None or self.ranking.last <= _LARGEST_MARK, (
            "a mark holds numbers to 127"
        )

    @property
    def is_of_first_rows(self) -> bool:
        """Whether nothing but the first row of each partition matters, and will ever matter."""
        return self.ranking.takes_one and self.strategy == "append"


@dataclass(frozen=True, slots=True)
class Rank:
    """The operator; it has no state of its own."""

    spec: RankSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
        return {"rows": self.spec.ttl_ms}

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        layout: Layout = "last write" if spec.is_of_first_rows else "ordered"
        arrangement = Arrangement(
            stores["rows"],
            "rows",
            layout,
            spec.ttl_ms,
            now,
            latest_first=spec.ranking.ties == "latest first",
            by_number=spec.ranking.function != "row_number",
        )
        resolved, stored = self._resolve(arrangement, changes)
        taken = resolved.refreshed.weight < 0
        gone = Entries.concat([resolved.removed, -resolved.refreshed.filter(taken)])
        come = Entries.concat([resolved.added, resolved.refreshed.filter(~taken)])
        if len(gone) == len(come) == 0:
            rows = Rows.empty()
        elif spec.is_of_first_rows:
            rows = self._replace_first(arrangement, gone, come)
        elif spec.strategy == "retract":
            rows = self._apply(arrangement, gone, *self._read_from_the_top(arrangement, gone, come))
        else:
            if stored is None:
                hashes = distinct(np.concatenate([gone.hash, come.hash]))
                stored = arrangement.lookup(hashes)
            stayed = arrangement.without(stored, -gone) if len(gone) else stored
            touched = Touched.of(gone, come, stayed.units)
            rows = self._apply(arrangement, gone, self._number(touched, self._order(touched)), Entries.empty())
        counts = spec.counts_unmatched and spec.strategy != "improving"
        unmatched = changes.take(resolved.unmatched) if counts else Changes.empty()
        finished = arrangement.finish()
        return Output(rows, unmatched, finished.state, finished.merged_rows)

    def _replace_first(self, arrangement: Arrangement, gone: Entries, come: Entries) -> Rows:
        """Keep the first row of each partition, and emit which one goes and which one comes."""
        payload, seq, weight = replace_first(arrangement, gone, come, self.spec.ranking.ties)
        if self.spec.numbered is not None:
            payload = self.spec.numbered(payload, np.ones(len(payload), np.int64))
        return net_rows(payload, seq, weight, self._again)

    def _resolve(self, arrangement: Arrangement, changes: Changes) -> tuple[Resolved, Entries | None]:
        """What the changes do and, where that had to be looked up for it, the rows of their keys before them."""
        identity, by_seq = self.spec.identity, self.spec.by_seq
        if identity is None:
            return resolve(arrangement, changes, by_seq=by_seq), None
        stored = arrangement.lookup(distinct(changes.hash))
        identities = identity(changes.payload), identity(stored.payload)
        return replace_among(arrangement, changes, stored, identities, by_seq=by_seq), stored

    def _read_from_the_top(self, arrangement: Arrangement, gone: Entries, come: Entries) -> tuple[Candidates, Entries]:
        """The candidates of the touched partitions, and the rows that come so far down that they are none.

        Partitions that turn out not to be certain are read again, four times as far; the loop is over these readings,
        of all such partitions at once, and not over partitions.
        """
        firsts = arrangement.firsts(np.concatenate([gone.hash, come.hash]))
        enough, parts, below = self.spec.ranking.last + MARGIN, [], []
        while len(firsts):
            whole = arrangement.whole(firsts)
            goes, comes = (part.filter(whole.holds(part)) for part in (gone, come))
            divides = self.spec.ranking.function == "row_number"
            stayed, reach = arrangement.scan_prefix(firsts, enough, -goes, comes if divides else None)
            touched = Touched.of(goes, comes, stayed.units)
            read = touched.filter(reach.holds(touched.entries))
            order = self._order(read)
            candidates, uncertain = self._number(read, order), self._uncertain(read, order)
            # The partitions that begin at one place are certain together, or where all their rows have been read.
            of_uncertain = arrangement.firsts(touched.entries.hash[uncertain[touched.keys]])
            again = is_in(firsts, of_uncertain) & ~reach.is_whole
            done = whole.filter(~again)
            parts.append(candidates.filter(done.holds(candidates.entries)))
            below.append(comes.filter(done.holds(comes) & ~reach.holds(comes)))
            firsts, enough = firsts[again], 4 * enough
        return Candidates.concat(parts), Entries.concat(below)

    def _order(self, touched: Touched) -> RankOrder:
        return RankOrder.of(touched.keys, touched.count, touched.entries, self.spec.ranking.ties)

    def _number(self, touched: Touched, order: RankOrder) -> Candidates:
        """The rows with their numbers before and after."""
        spec, entries = self.spec, touched.entries
        after = order.numbers(spec.ranking.function, touched.now)
        kept = touched.now
        if spec.strategy != "retract":
            limit = order.numbers("rank", touched.now) if spec.strategy == "improving" else after
            kept = touched.now & (limit <= spec.ranking.last)
        if spec.ttl_ms is None:
            old = _in_range(order.numbers(spec.ranking.function, touched.was), spec.ranking)
        else:
            old = np.where(touched.was, entries.mark, 0).astype(np.int64)
        return Candidates(entries, touched.was, touched.now, old, _in_range(after, spec.ranking), kept)

    def _uncertain(self, touched: Touched, order: RankOrder) -> Mask:
        """Which partitions have too few rows, before or after, to be sure that no other row matters.

        With RANK as with ROW_NUMBER, `last` rows are enough, because ties have been read together.
        """
        function: RankFunction = "dense_rank" if self.spec.ranking.function == "dense_rank" else "row_number"
        most = (order.most(function, there, touched.keys, touched.count) for there in (touched.was, touched.now))
        return np.minimum(*most) < self.spec.ranking.last

    def _apply(self, arrangement: Arrangement, gone: Entries, candidates: Candidates, below: Entries) -> Rows:
        """Append what the batch does to the rows, and emit how the range changes."""
        entries, was, kept = candidates.entries, candidates.was, candidates.kept
        marks = self._marks(candidates)
        stays = was & candidates.now
        rewritten = stays & (~kept | (marks != entries.mark))
        arrangement.append(-gone)
        arrangement.append(-entries.filter(rewritten))
        comes = kept & (rewritten | ~was)
        arrangement.append(entries.relabel(mark=marks).filter(comes))
        arrangement.append(below)
        return self._emit(candidates)

    def _marks(self, candidates: Candidates) -> Int8s:
        if self.spec.ttl_ms is None:
            return np.zeros(len(candidates.entries), np.int8)
        return (candidates.new if self.spec.numbered is not None else candidates.new > 0).astype(np.int8)

    def _emit(self, candidates: Candidates) -> Rows:
        numbered, entries = self.spec.numbered, candidates.entries
        old, new = candidates.old, candidates.new
        if numbered is None:
            old, new = (old > 0).astype(np.int64), (new > 0).astype(np.int64)
        leaves, enters = (np.flatnonzero((numbers > 0) & (old != new)) for numbers in (old, new))
        rows = np.concatenate([leaves, enters])
        payload = entries.payload.take(pa.array(rows))
        if numbered is not None:
            payload = numbered(payload, np.concatenate([old[leaves], new[enters]]))
        weight = np.repeat(np.array([-1, 1]), [len(leaves), len(enters)])
        return net_rows(payload, entries.seq[rows], weight, self._again)

    @property
    def _again(self) -> Indices | None:
        """No refreshes but for what goes and comes as it is, or not even for that."""
        return np.empty(0, np.int64) if self.spec.refreshes else None


def _in_range(numbers: Int64s, ranking: Ranking) -> Int64s:
    """The numbers, 0 where they are not in the range of the ranking."""
    return np.where((numbers >= ranking.first) & (numbers <= ranking.last), numbers, 0)
