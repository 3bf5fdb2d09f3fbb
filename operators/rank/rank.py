"""Rank: the rows of each partition whose ROW_NUMBER, RANK or DENSE_RANK is in a range, with or without the numbers.

Of the multiset of its input's rows, maintains those with first <= number <= last, numbered within each partition in the
order of the order key. An optional condition on a row and its numbers restricts the rows further. If a query uses
several of the three functions with the same order, they share one state. Among equal order keys, ROW_NUMBER ranks the
earlier arrival first (by seq, then by payload) or, depending on `ties`, the later one; RANK and DENSE_RANK give equal
numbers. One arrangement, "rows", in layout *ordered*, stores rows by partition and order key. A deduplication is
ROW_NUMBER 1: the first or last row by a time, or by arrival if all rows are ties.

Algorithm. The changes are resolved to inserted and retracted rows, and the other relevant rows of the touched
partitions are looked up. The rows are sorted once and numbered twice, once without the inserted rows and once without
the retracted ones; the difference is emitted. If the output has no number, a row changes when it enters or leaves the
result; otherwise it also changes when one of its numbers does.

Without a `last`, every row may be in the result, and a change may renumber every row after it. If the query does not
distinguish numbers above `settled`, all of these count as `settled` + 1. The partition is then read only up to that
point; rows after it have the same number before and after. Otherwise, the whole partition is read for every change.

There are three strategies. The plan chooses one by what it knows about the input:

    append      rows are only inserted. State: rows with number <= last; other rows can never reach the range.
    improving   rows are identified by a unique key, within one partition; an update never increases the order key,
                and no row is deleted permanently. State: rows with RANK <= last. This holds for ROW_NUMBER too,
                because an update that keeps the order key may move its row behind its ties. It does not hold for
                DENSE_RANK, whose numbers decrease when two rows become ties.
    retract     any change. State: all rows. A partition is read from its first row, only as far as the range and the
                retracted rows require. Rows with the same order code are read together, but if there are very many
                ties, ROW_NUMBER reads only the first ones. RANK and DENSE_RANK give all ties one number, so they read
                all of them. To find a retracted row among ties, the payloads of all ties are compared: 25 ms for a
                million rows.

A row that was dropped because it could not reach the range cannot be found by a later retraction. With `append`, such a
retraction is unmatched; with `improving`, no retraction is ever reported as unmatched.

If a partition stores a single row, as with `append` and ROW_NUMBER up to 1, the arrangement is in layout *last write*
and `operators.rank.first_row` implements the algorithm.

Expiry. Starting at written_at + TTL, a row is invisible: it is no longer counted, but the rows emitted because of it
stay in the output, as in Flink. The rows after it move up only when something else in the partition changes. So with a
TTL the numbers of the visible rows do not determine what is in the output. Each row's mark records it instead: the
number under which the row is in the output, 1 if numbers are not emitted, or 0 if it is not in the output. The
retraction of an expired row is unmatched, even if the row is in the output, as in Flink.

Internally, a rewritten row is retracted and inserted. So is a refreshed row, which keeps its arrival number and
therefore its rank. If the row is still in the output under the same number, nothing is emitted, except a refresh if a
downstream operator has a TTL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout
from rowkind.operators.arrangement.netting import net_rows
from rowkind.operators.arrangement.resolving import Resolved, replace_among, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows
from rowkind.operators.columns.grouping import distinct, is_in
from rowkind.operators.columns.rowtime import RowTime
from rowkind.operators.errors import RowFailed
from rowkind.operators.operator import Output
from rowkind.operators.rank.first_row import replace_first
from rowkind.operators.rank.ranking import RankFunction, Ranking
from rowkind.operators.rank.rows import Candidates, RankOrder, Touched

MARGIN = 8
"""The number of rows read beyond the range, so that a few retracted rows do not require a second read."""

Numbers = Mapping[RankFunction, Int64s]
"""Each row's number by each function; 0 if the row is absent."""

_LARGEST_MARK = 127

_ALL = 1 << 48
"""A bound higher than any possible number of rows."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """The specification of a rank, and the input that the plan must provide.

    All changes belong to side 0:
    - `key`: comparable bytes of the PARTITION BY columns, never null; all NULLs form one partition. Without PARTITION
      BY, the same constant in every row.
    - `sub_key`: comparable bytes of the ORDER BY columns, with directions and NULLS FIRST / LAST applied. Empty if all
      rows are ties. The columns need not be in the payload.
    - `seq`: arrival numbers, as scans and operators assign them.
    - `kind`: +I and +U for the strategy `append`. For `improving`, +I and +U, each of which replaces the row with its
      unique key; -U and -D are allowed if the batch also inserts a row with the same unique key. For `retract`, every
      retraction carries the full row that it retracts, so an upsert input must be normalized first.

    Fields:
    - `numbered` returns output rows, given payloads and their numbers by the functions in `numbers`, by default the
      ranking's own function. None if the output has no numbers.
    - `admits` takes the payloads of rows in the range, and their numbers by the functions in `asked`. It returns which
      of these rows are in the result. Its result must depend on nothing else, whether or not the rank is bounded.
    - `bound`: if the ranking has no `last`, returns the largest number of each row that `admits` may accept. It must be
      the same for all rows that a partition ever has.
    - `identity` returns the bytes of each payload's unique key; only for `improving`. Rows with the same unique key
      must always be in the same partition.
    - `by_seq`: whether a row's changes are applied in the order of seq, as from a source. Otherwise each batch is a net
      multiset of signed rows, as from an operator.
    - `counts_unmatched`: whether retractions that find no row are returned as unmatched.
    - `ttl_ms`: the TTL in ms. With a TTL and `numbered`, only one number is allowed, up to 127.
    - `until`: returns the time until which each row is stored, the same for all rows of a partition. None if the rows'
      own times do not limit this.
    - `refreshes`: whether a downstream operator has a TTL.
    """

    ranking: Ranking
    numbered: Callable[[pa.BinaryArray, Sequence[Int64s]], pa.BinaryArray] | None = None
    numbers: tuple[RankFunction, ...] = ()
    admits: Callable[[pa.BinaryArray, Numbers], Mask] | None = None
    asked: tuple[RankFunction, ...] = ()
    bound: Callable[[pa.BinaryArray], Int64s] | None = None
    identity: Callable[[pa.BinaryArray], pa.BinaryArray] | None = None
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None
    refreshes: bool = False

    def __post_init__(self) -> None:
        assert (self.identity is not None) == (self.ranking.strategy == "improving"), "improving rows have a unique key"
        unbounded = self.ranking.last is None
        assert self.bound is None or (unbounded and self.ranking.settled is None), (
            "`bound` excludes `last` and `settled`"
        )
        if self.ttl_ms is not None and self.numbered is not None:
            assert len(self.emitted) == 1, "a mark stores one number"
            assert self.depth is not None, "a mark can store numbers up to 127"
            assert self.depth + unbounded <= _LARGEST_MARK, "a mark can store numbers up to 127"

    @property
    def is_of_first_rows(self) -> bool:
        """Whether only the first row of each partition matters, now and later."""
        return self.ranking.takes_one and self.ranking.strategy == "append" and self.admits is None

    @property
    def emitted(self) -> tuple[RankFunction, ...]:
        """The functions whose numbers are in the output."""
        return () if self.numbered is None else self.numbers or (self.ranking.function,)

    @property
    def functions(self) -> tuple[RankFunction, ...]:
        """All functions whose numbers are needed, each once."""
        return tuple(dict.fromkeys((self.ranking.function, *self.emitted, *self.asked)))

    @property
    def depth(self) -> int | None:
        """The number up to which rows must be distinguished; None if all rows must be."""
        return self.ranking.settled if self.ranking.last is None else self.ranking.last

    @property
    def measure(self) -> RankFunction:
        """The function whose numbers show, for every relevant function, that all rows up to `depth` have been read.

        RANK needs no more rows than ROW_NUMBER, because ties are read together.
        """
        matter = self.functions if self.ranking.last is None else (self.ranking.function,)
        return "dense_rank" if "dense_rank" in matter else "row_number"

    @property
    def divides_ties(self) -> bool:
        """Whether it is enough to read some of the ties, because the numbers of the others do not matter."""
        if self.ranking.last is None:
            return self.functions == ("row_number",)
        return self.ranking.function == "row_number"


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank operator. It keeps its state in the stores, not in this object."""

    spec: RankSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangement of the rows, and its TTL in ms."""
        return {"rows": self.spec.ttl_ms}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        layout: Layout = "last write" if spec.is_of_first_rows else "ordered"
        arrangement = Arrangement(
            stores["rows"],
            ArrangementSpec(
                "rows",
                layout,
                spec.ttl_ms,
                latest_first=spec.ranking.ties == "latest first",
                by_number="row_number" not in spec.functions,
                until=spec.until,
            ),
            now,
        )
        resolved, stored = self._resolve(arrangement, batch)
        taken = resolved.refreshed.weight < 0
        gone = Entries.concat([resolved.removed, -resolved.refreshed.filter(taken)])
        come = Entries.concat([resolved.added, resolved.refreshed.filter(~taken)])
        if len(gone) == len(come) == 0:
            rows = Emitted(Rows.empty())
        elif spec.is_of_first_rows:
            rows = self._replace_first(arrangement, gone, come)
        elif spec.ranking.strategy == "retract":
            rows = self._apply(arrangement, gone, self._read_from_the_top(arrangement, gone, come))
        else:
            if stored is None:
                hashes = distinct(np.concatenate([gone.hash, come.hash]))
                stored = arrangement.lookup(hashes)
            stayed = arrangement.without(stored, -gone) if len(gone) else stored
            touched = Touched.of(gone, come, stayed.units)
            rows = self._apply(arrangement, gone, self._number(touched, self._order(touched)))
        counts = spec.counts_unmatched and spec.ranking.strategy != "improving"
        unmatched = batch.changes.take(resolved.unmatched) if counts else Changes.empty()
        finished = arrangement.finish()
        return Output(rows, unmatched, finished.state, finished.merged_rows)

    def _replace_first(self, arrangement: Arrangement, gone: Entries, come: Entries) -> Emitted:
        """Store the first row of each partition, and return the first rows that were retracted and inserted."""
        payload, seq, weight = replace_first(arrangement, gone, come, self.spec.ranking.ties)
        if self.spec.numbered is not None:
            payload = self.spec.numbered(payload, [np.ones(len(payload), np.int64)] * len(self.spec.emitted))
        return net_rows(payload, seq, weight, self._again)

    def _resolve(self, arrangement: Arrangement, batch: Batch) -> tuple[Resolved, Entries | None]:
        """Resolve the changes.

        If their keys' rows were looked up, also return these rows as they were before the batch.
        """
        identity, by_seq = self.spec.identity, self.spec.by_seq
        if identity is None:
            return resolve(arrangement, batch, by_seq=by_seq), None
        stored = arrangement.lookup(distinct(batch.touched.hash))
        identities = identity(batch.changes.payload), identity(stored.payload)
        return replace_among(arrangement, batch, stored, identities, by_seq=by_seq), stored

    def _read_from_the_top(self, arrangement: Arrangement, gone: Entries, come: Entries) -> Candidates:
        """Return the candidates of the touched partitions; they include every changed row, whatever its rank.

        Partitions that are still uncertain are read again, four times as far. Each iteration of the loop reads all of
        these partitions at once.
        """
        firsts = arrangement.firsts(np.concatenate([gone.hash, come.hash]))
        enough = MARGIN + max((int(self._depths(part).max()) for part in (gone, come) if len(part)), default=0)
        parts: list[Candidates] = []
        while len(firsts):
            whole = arrangement.whole(firsts)
            goes, comes = (part.filter(whole.holds(part)) for part in (gone, come))
            stayed, reach = arrangement.scan_prefix(firsts, enough, -goes, comes if self.spec.divides_ties else None)
            touched = Touched.of(goes, comes, stayed.units)
            within = reach.holds(touched.entries)
            read = touched.filter(within)
            order = self._order(read)
            found = [self._number(read, order), self._beyond(touched.filter(~within))]
            # Partitions that begin at the same place become certain together, or when all of their rows have been read.
            depths = np.zeros(touched.count, np.int64)
            changes = np.flatnonzero(touched.was != touched.now)
            depths[touched.keys[changes]] = self._depths(touched.entries.take(changes))
            of_uncertain = arrangement.firsts(touched.entries.hash[self._uncertain(read, order, depths)[touched.keys]])
            again = is_in(firsts, of_uncertain) & ~reach.is_whole
            done = whole.filter(~again)
            parts += [part.filter(done.holds(part.entries)) for part in found]
            firsts, enough = firsts[again], 4 * enough
        return Candidates.concat(parts)

    def _order(self, touched: Touched) -> RankOrder:
        return RankOrder.of(touched.keys, touched.count, touched.entries, self.spec.ranking.ties)

    def _number(self, touched: Touched, order: RankOrder) -> Candidates:
        """Return the rows with their numbers before and after the batch."""
        spec = self.spec
        functions = (*spec.functions, "rank") if spec.ranking.strategy == "improving" else spec.functions
        after = {function: order.numbers(function, touched.now) for function in functions}
        kept = touched.now
        if spec.ranking.strategy != "retract":
            assert spec.ranking.last is not None, "only a bounded rank drops rows"
            limit = after["rank" if spec.ranking.strategy == "improving" else spec.ranking.function]
            kept = kept & (limit <= spec.ranking.last)
        before: Numbers = {}
        if spec.ttl_ms is None:
            before = {function: order.numbers(function, touched.was) for function in spec.functions}
        return self._in_result(touched, before, after, kept)

    def _beyond(self, touched: Touched) -> Candidates:
        """Return the changed rows that come after all rows that must be distinguished."""
        far = self._depths(touched.entries) + 1
        before, after = (
            dict.fromkeys(self.spec.functions, np.where(there, far, 0)) for there in (touched.was, touched.now)
        )
        return self._in_result(touched, before, after, touched.now)

    def _in_result(self, touched: Touched, before: Numbers, after: Numbers, kept: Mask) -> Candidates:
        """Return the rows with their old and new numbers in the result."""
        if self.spec.ttl_ms is None:
            old = self._result(touched.entries, before)
        else:
            old = np.where(touched.was, touched.entries.mark, 0).astype(np.int64).reshape(-1, 1)
        new = self._result(touched.entries, after)
        return Candidates(touched.entries, touched.was, touched.now, old, new, kept)

    def _result(self, entries: Entries, numbers: Numbers) -> Int64s:
        """Return the output numbers of rows with these numbers, 0 if a row is not in the result."""
        spec = self.spec
        if spec.ranking.settled is not None:
            numbers = {function: np.minimum(each, spec.ranking.settled + 1) for function, each in numbers.items()}
        own = numbers[spec.ranking.function]
        there = own >= spec.ranking.first
        if spec.ranking.last is not None:
            there &= own <= spec.ranking.last
        if spec.admits is not None:
            rows = np.flatnonzero(there)
            payload = entries.payload.take(pa.array(rows))
            try:
                there[rows] = spec.admits(payload, {function: numbers[function][rows] for function in spec.asked})
            except RowFailed as error:
                raise error.came_with(int(entries.seq[rows[error.row]])) from None
        return np.column_stack([np.where(there, numbers[each], 0) for each in spec.emitted] or [there.astype(np.int64)])

    def _depths(self, entries: Entries) -> Int64s:
        """Return, for each entry, the number up to which its partition's rows must be distinguished."""
        if self.spec.bound is not None:
            return np.minimum(self.spec.bound(entries.payload), _ALL)
        return np.full(len(entries), _ALL if self.spec.depth is None else self.spec.depth)

    def _uncertain(self, touched: Touched, order: RankOrder, depths: Int64s) -> Mask:
        """Return which partitions may have further relevant rows, because too few rows were read before or after."""
        measure = self.spec.measure
        most = (order.most(measure, there, touched.keys, touched.count) for there in (touched.was, touched.now))
        return np.minimum(*most) < depths

    def _apply(self, arrangement: Arrangement, gone: Entries, candidates: Candidates) -> Emitted:
        """Append the changes to the arrangement, and return the change of the result."""
        entries, was, kept = candidates.entries, candidates.was, candidates.kept
        marks = np.zeros(len(entries), np.int8)
        if self.spec.ttl_ms is not None:
            marks = candidates.new[:, 0].astype(np.int8)
        stays = was & candidates.now
        rewritten = stays & (~kept | (marks != entries.mark))
        arrangement.append(-gone)
        arrangement.append(-entries.filter(rewritten))
        comes = kept & (rewritten | ~was)
        arrangement.append(entries.relabel(mark=marks).filter(comes))
        return self._emit(candidates)

    def _emit(self, candidates: Candidates) -> Emitted:
        numbered, entries = self.spec.numbered, candidates.entries
        old, new = candidates.old, candidates.new
        changed = (old != new).any(axis=1)
        leaves, enters = (np.flatnonzero(changed & (numbers[:, 0] > 0)) for numbers in (old, new))
        rows = np.concatenate([leaves, enters])
        payload = entries.payload.take(pa.array(rows))
        if numbered is not None:
            payload = numbered(payload, [*np.concatenate([old[leaves], new[enters]]).T])
        weight = np.repeat(np.array([-1, 1]), [len(leaves), len(enters)])
        return net_rows(payload, entries.seq[rows], weight, self._again)

    @property
    def _again(self) -> Indices | None:
        """An empty array if refreshes are needed, as only unchanged, rewritten rows are refreshed; None otherwise."""
        return np.empty(0, np.int64) if self.spec.refreshes else None
