"""Rank: the rows of each partition whose ROW_NUMBER, RANK or DENSE_RANK is in a range, with or without the numbers.

Maintains the input rows with first <= number <= last. The rows are numbered within each partition, in the order of the
order key; equal rows count separately. An optional condition on a row and the row's numbers restricts the rows further.
If a query uses several of the three functions with the same order, they share one state. Among rows with equal order
keys, ROW_NUMBER ranks the earlier arrival first (by seq, then by payload) or, depending on `ties`, the later arrival;
RANK and DENSE_RANK give these rows equal numbers. One arrangement, "rows", in layout *ordered*, stores rows by
partition and order key. A deduplication is a rank with ROW_NUMBER = 1: it selects the first or last row by a time, or
by arrival if all rows are ties.

Algorithm. The changes are resolved to inserted and retracted rows, and the other relevant rows of the touched
partitions are looked up. The rows are sorted once and numbered twice, once without the inserted rows and once without
the retracted rows; the difference is emitted. The output changes when a row enters or leaves the result. If the output
contains numbers, it also changes when one of a row's numbers changes.

Without a `last`, every row may be in the result, and a change may renumber every row after it. If the query does not
distinguish numbers above `settled`, all higher numbers count as `settled` + 1. In that case the partition is read only
up to that number, because the rows after it have the same number before and after the batch. Otherwise, the whole
partition is read for every change.

There are three strategies. The plan chooses one of them according to the changes that the input may have:

    append      rows are only inserted. State: rows with number <= last; other rows can never be in the range.
    improving   rows are identified by a unique key and never change their partition; an update never increases the
                order key, and no row is deleted permanently. State: rows with RANK <= last. This is also the state
                for ROW_NUMBER, because an update that keeps the order key may move its row behind tied rows.
                DENSE_RANK is not supported, because its numbers decrease when two rows become tied.
    retract     any change. State: all rows. A partition is read from its first row, only as far as the range and the
                retracted rows require. Rows with the same order code are read together, but if very many rows are
                tied, ROW_NUMBER reads only the first of them. RANK and DENSE_RANK give all tied rows the same number,
                so they read all of these rows. To find a retracted row among tied rows, the payloads of all tied rows
                are compared: 25 ms for a million rows.

If a row was dropped because it could not be in the range, a later retraction does not find it. With `append`, this
retraction is unmatched; with `improving`, no retraction is ever reported as unmatched.

If a single row per partition is stored, as with `append` and ROW_NUMBER = 1, the arrangement is in layout *last write*
and `operators.rank.first_row` implements the algorithm.

Expiry. Starting at written_at + TTL, a row is invisible: it is no longer counted, but it stays in the output, as in
Flink. The rows after it move up only when another row of the partition changes. So with a TTL the numbers of the
visible rows do not determine what is in the output. Instead, each row's mark records this: the number with which the
row is in the output, 1 if the output has no numbers, or 0 if the row is not in the output. The retraction of an expired
row is unmatched, even if the row is in the output, as in Flink.

Internally, a rewritten row is retracted and inserted. A refreshed row is too, but it keeps its arrival number and
therefore its rank. If the row stays in the output with the same number, nothing is emitted, except a refresh if a
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
"""The number of rows read beyond the range, so that a few retractions do not require a second read."""

Numbers = Mapping[RankFunction, Int64s]
"""The number that each function assigns to each row; 0 if the row is absent."""

_LARGEST_MARK = 127

_ALL = 1 << 48
"""A bound higher than any possible number of rows."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """The specification of a rank, and the input that the plan must provide.

    All changes belong to side 0:
    - `key`: comparable bytes of the PARTITION BY columns, never null; all NULLs form one partition. Without PARTITION
      BY, the key is the same constant in every row.
    - `sub_key`: comparable bytes of the ORDER BY columns, with directions and NULLS FIRST / LAST applied. Empty if all
      rows are ties. The columns need not be in the payload.
    - `seq`: the arrival numbers that scans and operators assign.
    - `kind`: +I and +U for the strategy `append`. For `improving`, +I and +U, each of which replaces the row with the
      same unique key; -U and -D are allowed if the batch also inserts a row with the same unique key. For `retract`,
      every retraction carries the full row that it retracts, so an upsert input must be normalized first.

    Fields:
    - `numbered` takes payloads and the rows' numbers, and returns output rows. None if the output has no numbers.
      `numbers` lists the functions that assign these numbers; if it is empty, the ranking's own function does.
    - `admits` takes the payloads of rows in the range, and the numbers that the functions in `asked` assign to them. It
      returns a mask of the rows that are in the result. The mask must depend on nothing else, whether or not the rank
      is bounded.
    - `bound`: if the ranking has no `last`, returns for each row the largest number that `admits` may accept. This
      number must be the same for all rows that a partition ever contains.
    - `identity` returns the bytes of each payload's unique key. Set only for `improving`. Rows with the same unique key
      must always be in the same partition.
    - `by_seq`: whether a row's changes are applied in `seq` order, as for a source. Otherwise each batch is a net
      multiset of signed rows, as from an operator.
    - `counts_unmatched`: whether retractions that find no row are returned as unmatched.
    - `ttl_ms`: the TTL in ms. If both a TTL and `numbered` are set, rows can have only one number, which is at most
      127.
    - `until`: returns the time until which each row is stored, which is the same for all rows of a partition. None if
      no time in the rows limits how long they are stored.
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
        assert (self.identity is not None) == (self.ranking.strategy == "improving"), "`improving` needs `identity`"
        unbounded = self.ranking.last is None
        assert self.bound is None or (unbounded and self.ranking.settled is None), (
            "`bound` excludes `last` and `settled`"
        )
        if self.ttl_ms is not None and self.numbered is not None:
            assert len(self.emitted) == 1, "with a TTL, the output can have only one number"
            assert self.depth is not None, "a mark can store numbers up to 127"
            assert self.depth + unbounded <= _LARGEST_MARK, "a mark can store numbers up to 127"

    @property
    def is_of_first_rows(self) -> bool:
        """Whether only the first row of each partition can ever affect the result."""
        return self.ranking.takes_one and self.ranking.strategy == "append" and self.admits is None

    @property
    def emitted(self) -> tuple[RankFunction, ...]:
        """The functions whose numbers are in the output."""
        return () if self.numbered is None else self.numbers or (self.ranking.function,)

    @property
    def functions(self) -> tuple[RankFunction, ...]:
        """All functions whose numbers are needed, without duplicates."""
        return tuple(dict.fromkeys((self.ranking.function, *self.emitted, *self.asked)))

    @property
    def depth(self) -> int | None:
        """The number up to which rows must be distinguished; None if all rows must be distinguished."""
        return self.ranking.settled if self.ranking.last is None else self.ranking.last

    @property
    def measure(self) -> RankFunction:
        """The function whose numbers show that enough rows have been read for all relevant functions.

        Enough means all rows up to `depth`. RANK needs no more rows than ROW_NUMBER, because ties are read together.
        """
        matter = self.functions if self.ranking.last is None else (self.ranking.function,)
        return "dense_rank" if "dense_rank" in matter else "row_number"

    @property
    def divides_ties(self) -> bool:
        """Whether reading some of the tied rows is enough, because the other tied rows' numbers do not matter."""
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

        If this requires looking up all rows with touched keys, also return these rows as they were before the batch.
        """
        identity, by_seq = self.spec.identity, self.spec.by_seq
        if identity is None:
            return resolve(arrangement, batch, by_seq=by_seq), None
        stored = arrangement.lookup(distinct(batch.touched.hash))
        identities = identity(batch.changes.payload), identity(stored.payload)
        return replace_among(arrangement, batch, stored, identities, by_seq=by_seq), stored

    def _read_from_the_top(self, arrangement: Arrangement, gone: Entries, come: Entries) -> Candidates:
        """Return the touched partitions' candidates, which include every changed row regardless of its rank.

        If it is uncertain whether enough of a partition has been read, the partition is read again, four times as far.
        Each iteration of the loop reads all uncertain partitions at once.
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
            # Partitions that begin at the same place are read again together, until all of them are certain or have
            # been read completely.
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
        """Return the changed rows that rank after all rows that must be distinguished, with their numbers."""
        far = self._depths(touched.entries) + 1
        before, after = (
            dict.fromkeys(self.spec.functions, np.where(there, far, 0)) for there in (touched.was, touched.now)
        )
        return self._in_result(touched, before, after, touched.now)

    def _in_result(self, touched: Touched, before: Numbers, after: Numbers, kept: Mask) -> Candidates:
        """Return the rows with the numbers that they have in the result before and after the batch."""
        if self.spec.ttl_ms is None:
            old = self._result(touched.entries, before)
        else:
            old = np.where(touched.was, touched.entries.mark, 0).astype(np.int64).reshape(-1, 1)
        new = self._result(touched.entries, after)
        return Candidates(touched.entries, touched.was, touched.now, old, new, kept)

    def _result(self, entries: Entries, numbers: Numbers) -> Int64s:
        """Return the rows' output numbers, given the functions' numbers; 0 if a row is not in the result."""
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
        """Return a mask of the partitions that may have further relevant rows, before or after the batch."""
        measure = self.spec.measure
        most = (order.most(measure, there, touched.keys, touched.count) for there in (touched.was, touched.now))
        return np.minimum(*most) < depths

    def _apply(self, arrangement: Arrangement, gone: Entries, candidates: Candidates) -> Emitted:
        """Append the changes to the arrangement, and return the changes to the result."""
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
        """An empty array if refreshes are needed, otherwise None.

        The array is empty because only rewritten rows without a net change are refreshed.
        """
        return np.empty(0, np.int64) if self.spec.refreshes else None
