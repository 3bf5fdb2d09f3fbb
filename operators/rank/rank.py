"""Rank: the rows of each partition whose ROW_NUMBER, RANK or DENSE_RANK lies in a range, with numbers or without.

Maintains, of the multiset of its input's rows, those with first <= number <= last, counted per partition in the order
of the order key; of these, where there is a further condition on a row and its numbers, those of which that is true.
Numbers by all three functions in one order come from one state. Equal order keys: ROW_NUMBER puts the earlier arrival
first (by seq, then by payload) or, told so by `ties`, the later one; the other two give equal numbers. One arrangement,
"rows", in layout *ordered*: rows by partition and order key. A deduplication is ROW_NUMBER 1: the first or the last row
by a time, or by arrival where all are ties.

The walk. Changes are resolved to rows that come and go; what else of the touched partitions matters is looked up; the
rows are put in order once and numbered twice, without those that come and without those that go; the difference is
emit. Without a number in the output a row has changed where it entered or left the result; with one, where a number
of it did.

Without a `last` every row may be in the result, and a change may give every row behind it another number. Then either
no number is told from the others beyond some point: all these are `settled` + 1, and the partition is read up to there;
what lies beyond has that number before and after. Or the whole partition is read for every change of it.

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
is in layout *last write* and the walk is `operators.rank.first_row`.

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
"""Rows read of a partition beyond the range, so that a few that are gone make no second reading necessary."""

Numbers = Mapping[RankFunction, Int64s]
"""By function the number of each row, 0 where it is not there."""

_LARGEST_MARK = 127

_ALL = 1 << 48
"""More rows than there are."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """What a rank computes, and what the plan must provide for it.

    Of the changes, all of side 0:

    - `key`: comparable bytes of the PARTITION BY columns, null safe: never null, all NULLs are one partition. Without
      PARTITION BY, one constant, the same in every row.
    - `sub_key`: comparable bytes of the ORDER BY columns, directions and NULLS FIRST / LAST as SQL has them. Empty
      where all rows are ties. The columns need not be in the payload.
    - `seq`: arrival, as scans and operators number it.
    - `kind`: +I and +U for the strategy `append`. For `improving` +I and +U, each of which replaces the row with its
      unique key; -U and -D may be there where an insertion of the same unique key is in the same batch. For `retract`
      every retraction carries the full row that it retracts, so an upsert input must be normalised first.

    Of this spec:

    - `numbered` makes output rows of payloads and their `numbers`, the ranking's own where no others are named; None
      where the query does not use them.
    - `admits` says of payloads and their numbers by the functions in `asked`, all rows of the range, which are in the
      result. Bounded or not, what it says of a row may depend on nothing else.
    - `bound`: without a `last`, the largest number that `admits` could let through of each row, which is the same for
      all rows that a partition ever has.
    - `identity` gives the unique key's bytes of payloads; for `improving` only. The partition must not change while the
      unique key stays.
    - `by_seq`: the changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset
      of signed rows (an operator).
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `ttl_ms`: with it and with `numbered` there is one number, and that is 127 at most.
    - `until`: until when rows are kept, the same for all of a partition; None where they have no time of their own.
    - `refreshes`: whether somebody further down has a TTL.
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
        assert self.bound is None or (unbounded and self.ranking.settled is None), "numbers have one end"
        if self.ttl_ms is not None and self.numbered is not None:
            assert len(self.emitted) == 1, "a mark holds one number"
            assert self.depth is not None, "a mark holds numbers to 127"
            assert self.depth + unbounded <= _LARGEST_MARK, "a mark holds numbers to 127"

    @property
    def is_of_first_rows(self) -> bool:
        """Whether nothing but the first row of each partition matters, and will ever matter."""
        return self.ranking.takes_one and self.ranking.strategy == "append" and self.admits is None

    @property
    def emitted(self) -> tuple[RankFunction, ...]:
        """The functions whose numbers are in the output."""
        return () if self.numbered is None else self.numbers or (self.ranking.function,)

    @property
    def functions(self) -> tuple[RankFunction, ...]:
        """All functions whose numbers somebody asks for, each once."""
        return tuple(dict.fromkeys((self.ranking.function, *self.emitted, *self.asked)))

    @property
    def depth(self) -> int | None:
        """The number up to which rows have to be told apart; None where all have to be."""
        return self.ranking.settled if self.ranking.last is None else self.ranking.last

    @property
    def measure(self) -> RankFunction:
        """By which numbers it is certain that all rows up to `depth` have been read, by every function that matters.

        RANK is certain after as many rows as ROW_NUMBER, because ties are read together.
        """
        matter = self.functions if self.ranking.last is None else (self.ranking.function,)
        return "dense_rank" if "dense_rank" in matter else "row_number"

    @property
    def divides_ties(self) -> bool:
        """Whether rows with one order key may be read in part: what is beyond has no number that matters."""
        if self.ranking.last is None:
            return self.functions == ("row_number",)
        return self.ranking.function == "row_number"


@dataclass(frozen=True, slots=True)
class Rank:
    """The operator; it has no state of its own."""

    spec: RankSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
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
        """Keep the first row of each partition, and emit which one goes and which one comes."""
        payload, seq, weight = replace_first(arrangement, gone, come, self.spec.ranking.ties)
        if self.spec.numbered is not None:
            payload = self.spec.numbered(payload, [np.ones(len(payload), np.int64)] * len(self.spec.emitted))
        return net_rows(payload, seq, weight, self._again)

    def _resolve(self, arrangement: Arrangement, batch: Batch) -> tuple[Resolved, Entries | None]:
        """What the changes do and, where that had to be looked up for it, the rows of their keys before them."""
        identity, by_seq = self.spec.identity, self.spec.by_seq
        if identity is None:
            return resolve(arrangement, batch, by_seq=by_seq), None
        stored = arrangement.lookup(distinct(batch.touched.hash))
        identities = identity(batch.changes.payload), identity(stored.payload)
        return replace_among(arrangement, batch, stored, identities, by_seq=by_seq), stored

    def _read_from_the_top(self, arrangement: Arrangement, gone: Entries, come: Entries) -> Candidates:
        """The candidates of the touched partitions; what goes or comes is among them however far down it is.

        Partitions that turn out not to be certain are read again, four times as far; the loop is over these readings,
        of all such partitions at once, and not over partitions.
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
            # The partitions that begin at one place are certain together, or where all their rows have been read.
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
        """The rows with their numbers before and after."""
        spec = self.spec
        functions = (*spec.functions, "rank") if spec.ranking.strategy == "improving" else spec.functions
        after = {function: order.numbers(function, touched.now) for function in functions}
        kept = touched.now
        if spec.ranking.strategy != "retract":
            assert spec.ranking.last is not None, "only what is bounded drops rows"
            limit = after["rank" if spec.ranking.strategy == "improving" else spec.ranking.function]
            kept = kept & (limit <= spec.ranking.last)
        before: Numbers = {}
        if spec.ttl_ms is None:
            before = {function: order.numbers(function, touched.was) for function in spec.functions}
        return self._in_result(touched, before, after, kept)

    def _beyond(self, touched: Touched) -> Candidates:
        """Rows that go or come beyond all that have to be told apart."""
        far = self._depths(touched.entries) + 1
        before, after = (
            dict.fromkeys(self.spec.functions, np.where(there, far, 0)) for there in (touched.was, touched.now)
        )
        return self._in_result(touched, before, after, touched.now)

    def _in_result(self, touched: Touched, before: Numbers, after: Numbers, kept: Mask) -> Candidates:
        """The rows with those of their numbers under which they are in the result."""
        if self.spec.ttl_ms is None:
            old = self._result(touched.entries, before)
        else:
            old = np.where(touched.was, touched.entries.mark, 0).astype(np.int64).reshape(-1, 1)
        new = self._result(touched.entries, after)
        return Candidates(touched.entries, touched.was, touched.now, old, new, kept)

    def _result(self, entries: Entries, numbers: Numbers) -> Int64s:
        """The numbers in the output of rows that have these numbers, 0 where they are not in the result."""
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
        """Up to which number the rows of the partition of each of these have to be told apart."""
        if self.spec.bound is not None:
            return np.minimum(self.spec.bound(entries.payload), _ALL)
        return np.full(len(entries), _ALL if self.spec.depth is None else self.spec.depth)

    def _uncertain(self, touched: Touched, order: RankOrder, depths: Int64s) -> Mask:
        """Which partitions have too few rows, before or after, to be sure that no other row matters."""
        measure = self.spec.measure
        most = (order.most(measure, there, touched.keys, touched.count) for there in (touched.was, touched.now))
        return np.minimum(*most) < depths

    def _apply(self, arrangement: Arrangement, gone: Entries, candidates: Candidates) -> Emitted:
        """Append what the batch does to the rows, and emit how the result changes."""
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
        """No refreshes but for what goes and comes as it is, or not even for that."""
        return np.empty(0, np.int64) if self.spec.refreshes else None
