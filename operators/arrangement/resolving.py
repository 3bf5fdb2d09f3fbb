"""Resolving: raw changes of one operator input become the exact entries that they add to its arrangement.

A retraction is resolved, when it arrives, to a row that is there: of equal rows to the oldest by (written_at, seq). It
takes over that row's written_at, seq and mark, so that the two cancel exactly and expire together. One that finds no
row changes nothing and is unmatched.

Layouts *multiset*, *ordered* and *last write*: a retraction takes away a row with the same key and payload, in layout
*ordered* also with the same sub-key. Payloads may be alike though their bytes differ (`Arrangement.alike`); what is
taken away is the stored row, as it is.

Layouts *one row per key* and *unique key*: rows are identified by (key, sub-key).
The last change of a row in the batch decides, an insertion replaces whatever is there, and what is taken away is always
the stored row, whatever payload the retraction carries. Rows whose key is NULL and that have no sub-key have no
identity, whichever the layout; they are treated as a multiset.

There is one exception. An input that is `exact` promises to take back rows as they were sent, and the changes of a key
in their order. Where a retraction of it meets another row than its own, the +U of the update has overtaken it and has
replaced that row already. It must not take the new row away instead: it is unmatched. (Where the two rows look alike in
the columns that are kept here, it is not found out.)

The order of changes is (seq, retraction before insertion) if the input is ordered by seq. Else the batch is a set of
signed rows without order, which may come in pieces, so equal rows of opposite sign may be among its changes. In a
multiset insertions then count before retractions. In the other layouts equal rows of one identity cancel first, and the
cancelled insertions count as refreshes; of the changes that are left, retractions count before insertions.

Refreshes come last. Each renews the written_at of a row that is there with the same key, sub-key and payload, of
several the one that would be taken back next, and keeps its seq: it is the same row. Where there is none, or it has
expired, nothing happens.

Where an operator keeps rows in layout *ordered* and has read those of the touched keys anyway, `replace_among` treats
them as identified by something else than their sub-key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.matched import Matched, new_entries
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Uint64s, concat_binary, lengths
from rowkind.operators.columns.consolidation import net_in_groups
from rowkind.operators.columns.grouping import (
    Groups,
    distinct,
    equal_bytes,
    group,
    in_turn,
    is_in,
    members,
    to_mask,
)
from rowkind.operators.columns.hashing import hash64, mix


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the changes of one input do to its arrangement.

    - `added` and `removed` are the rows that come and go, with positive weights; the marks of those added are 0.
    - `refreshed` are entries, to be appended as they are, by which rows go and equal ones with the same identity come:
      that rewrites written_at, seq and nothing else; a refresh not even the seq. A row that comes inherits the mark of
      the one that goes.
    - `unmatched` are the indices of the retractions that found no row; `overtaken` those among them that found another
      one under their identity, and so are not of a row that has expired.
    - `repeated` are the indices of the insertions that found a row with their identity, which nobody had taken back,
      and replaced it; none of an input in which insertions may do that.
    """

    added: Entries
    removed: Entries
    refreshed: Entries
    unmatched: Indices
    overtaken: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    repeated: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    def among(self, rows: Indices) -> Resolved:
        """The same with the changes at `rows` numbered as all changes are."""
        return replace(
            self, unmatched=rows[self.unmatched], overtaken=rows[self.overtaken], repeated=rows[self.repeated]
        )

    @property
    def rewritten(self) -> Entries:
        """The rows that are there before and after, as they are after."""
        return self.refreshed.filter(self.refreshed.weight > 0)


def resolve(arrangement: Arrangement, batch: Batch, *, by_seq: bool, exact: bool = False) -> Resolved:
    """What the batch of one input does to the arrangement; nothing is appended to it yet.

    `exact` matters only where the changes are ordered by seq.
    """
    resolved, again = _resolve(arrangement, batch.changes, by_seq=by_seq, exact=exact), batch.refreshes
    if not len(again):
        return resolved
    place = arrangement.places(again.hash, again.sub_key, again.payload)
    stored = arrangement.at(place, again.payload if arrangement.layout == "ordered" else None)
    return _renew(arrangement, again, stored, resolved)


def entries_of(arrangement: Arrangement, changes: Changes) -> Entries:
    """The changes as rows that the arrangement could hold, written now."""
    place = arrangement.places(changes.hash, changes.sub_key, changes.payload)
    return new_entries(arrangement, changes, place)


def _resolve(arrangement: Arrangement, changes: Changes, *, by_seq: bool, exact: bool) -> Resolved:
    if arrangement.layout in ("multiset", "ordered", "last write"):
        return _resolve_multiset(arrangement, changes, by_seq=by_seq)
    anonymous = _null(changes.key) & (lengths(changes.sub_key) == 0)
    if not anonymous.any():
        return _resolve_identified(arrangement, changes, by_seq=by_seq, exact=exact)
    parts = np.flatnonzero(~anonymous), np.flatnonzero(anonymous)
    identified = _resolve_identified(arrangement, changes.take(parts[0]), by_seq=by_seq, exact=exact)
    others = _resolve_multiset(arrangement, changes.take(parts[1]), by_seq=by_seq)
    return Resolved(
        Entries.concat([identified.added, others.added]),
        Entries.concat([identified.removed, others.removed]),
        Entries.concat([identified.refreshed, others.refreshed]),
        np.concatenate([parts[0][identified.unmatched], parts[1][others.unmatched]]),
        parts[0][identified.overtaken],
        parts[0][identified.repeated],
    )


def replace_among(
    arrangement: Arrangement,
    batch: Batch,
    stored: Entries,
    identities: tuple[pa.BinaryArray, pa.BinaryArray],
    *,
    by_seq: bool,
) -> Resolved:
    """What the batch does to the arrangement where (key, identity) identifies rows.

    `stored` are all rows of the batch's keys, and maybe of others; `identities` are those of changes and stored rows.
    """
    changes = batch.changes
    identity = concat_binary(identities)
    codes = mix(np.concatenate([changes.hash, stored.hash]), hash64(identity))
    groups = group(codes, [concat_binary([changes.key, stored.key]), identity])
    place = arrangement.places(changes.hash, changes.sub_key, changes.payload)
    resolved = _replace(arrangement, Matched(changes, place, stored, groups), by_seq=by_seq, exact=False)
    return _renew(arrangement, batch.refreshes, stored, resolved) if len(batch.refreshes) else resolved


def _renew(arrangement: Arrangement, again: Changes, stored: Entries, resolved: Resolved) -> Resolved:
    """The same, and refreshes beside it; `stored` has all rows that they may be of, as they are before the batch."""
    there = arrangement.without(stored, Entries.concat([-resolved.removed, resolved.refreshed]))
    there = there.filter(there.weight > 0).units
    columns = [
        concat_binary([getattr(part, name) for part in (again, there)]) for name in ("key", "sub_key", "payload")
    ]
    codes = mix(np.concatenate([again.hash, there.hash]), hash64(columns[-1]))
    groups = group(codes, columns)
    owner = groups.ids[len(again) :]
    wanted = np.bincount(groups.ids[: len(again)], minlength=groups.count)
    queue = np.lexsort((there.seq, there.written_at, owner))
    chosen = queue[members(np.bincount(owner, minlength=groups.count))[1] < wanted[owner[queue]]]
    old = there.take(chosen)
    # What the batch has written already need not be written again.
    old = old.filter(old.written_at != arrangement.written_at(old.payload))
    new = replace(old, written_at=arrangement.written_at(old.payload))
    return replace(resolved, refreshed=Entries.concat([resolved.refreshed, -old, new]))


def _resolve_multiset(arrangement: Arrangement, changes: Changes, *, by_seq: bool) -> Resolved:
    place = arrangement.places(changes.hash, changes.sub_key, changes.payload)
    retraction = changes.weight < 0
    if not retraction.any():
        return _nothing_but_new(arrangement, changes, place)
    concerned = is_in(place, distinct(place[retraction]))
    plain = new_entries(arrangement, changes, place).filter(~concerned)
    rows = np.flatnonzero(concerned)
    matched = Matched.by_payload(arrangement, changes.take(rows), place[rows])
    unmatched = _unmatched(matched, by_seq=by_seq)
    resolved = _take_oldest(arrangement, matched, ~unmatched)
    return replace(resolved, added=Entries.concat([plain, resolved.added]), unmatched=rows[unmatched])


def _unmatched(matched: Matched, *, by_seq: bool) -> Mask:
    """Which changes of a multiset are retractions that find no row."""
    of_change, seq = matched.of_change, matched.changes.seq
    there = np.zeros(matched.groups.count, np.int64)
    np.add.at(there, matched.of_stored, matched.stored.weight)
    retraction = matched.changes.weight < 0
    order = np.lexsort((~retraction, seq, of_change) if by_seq else (seq, retraction, of_change))
    unmatched = np.zeros(len(order), np.bool_)
    unmatched[order] = _below_zero(of_change[order], np.where(retraction, -1, 1)[order], there)
    return unmatched


def _take_oldest(arrangement: Arrangement, matched: Matched, counts: Mask) -> Resolved:
    """What the changes of a multiset do: of each group, the retractions that count take the oldest rows."""
    changes, stored, groups = matched.changes, matched.stored, matched.groups.count
    retraction = changes.weight < 0
    taken = np.bincount(matched.of_change[retraction & counts], minlength=groups)
    # The queue of each group, oldest first, one element per row: the retractions take from its head. Of equal rows that
    # are one entry, no more are spelled out than could be taken.
    new = new_entries(arrangement, changes, matched.place).filter(~retraction)
    most = np.minimum(stored.weight, taken[matched.of_stored])
    units = Entries.concat([stored.relabel(weight=most).units, new])
    is_new = np.repeat([False, True], [len(units) - len(new), len(new)])
    owner = np.concatenate([np.repeat(matched.of_stored, most), matched.of_change[~retraction]])
    queue = np.lexsort((units.seq, units.written_at, owner))
    units, is_new, owner = units.take(queue), is_new[queue], owner[queue]
    head = members(np.bincount(owner, minlength=groups))[1] < taken[owner]
    gone, come = np.flatnonzero(head & ~is_new), np.flatnonzero(~head & is_new)

    # As many as both go and come of a group are a refresh, paired in the order of the queue.
    both = np.minimum(*(np.bincount(owner[part], minlength=groups) for part in (gone, come)))
    gone_moved, come_moved = (
        members(np.bincount(owner[part], minlength=groups))[1] >= both[owner[part]] for part in (gone, come)
    )
    return Resolved(
        units.take(come[come_moved]),
        units.take(gone[gone_moved]),
        _refresh(units.take(gone[~gone_moved]), units.take(come[~come_moved])),
        np.empty(0, np.int64),
    )


def _below_zero(owner: Indices, steps: Int64s, start: Int64s) -> Mask:
    """Of walks one after the other, each from its owner's start: the steps that would lead below zero.

    They are not taken; so one is left out exactly where the plain sum of steps reaches a new low below zero.
    """
    first = np.concatenate(([True], owner[1:] != owner[:-1]))
    total = np.cumsum(steps)
    before = (total - steps)[first][np.cumsum(first) - 1]
    level = start[owner] + total - before
    # Each walk is sunk far below the one before, so that one running minimum serves all of them.
    depth = np.cumsum(first) * (2 * len(steps) + 2)
    lowest = np.minimum.accumulate(np.minimum(level, 0) - depth)
    entered = np.concatenate(([0], lowest[:-1]))
    entered[first] = -depth[first]
    return (steps < 0) & (lowest < entered)


def _resolve_identified(arrangement: Arrangement, changes: Changes, *, by_seq: bool, exact: bool) -> Resolved:
    place = arrangement.places(changes.hash, changes.sub_key, changes.payload)
    stored = arrangement.at(place)
    if len(stored) == 0 and not (changes.weight < 0).any() and len(distinct(place)) == len(place):
        return _nothing_but_new(arrangement, changes, place)
    matched = Matched.by(changes, place, stored, (changes.key, stored.key), (changes.sub_key, stored.sub_key))
    if by_seq and exact and (overtaken := _overtaken(matched)).any():
        rows, late = np.flatnonzero(~overtaken), np.flatnonzero(overtaken)
        resolved = _replace(arrangement, matched.take(rows), by_seq=by_seq, exact=True).among(rows)
        unmatched = np.sort(np.concatenate([resolved.unmatched, late]))
        return replace(resolved, unmatched=unmatched, overtaken=late)
    return _replace(arrangement, matched, by_seq=by_seq, exact=exact or not by_seq)


def _overtaken(matched: Matched) -> Mask:
    """Which retractions meet another row than their own: the last one that came before by seq, or else is stored."""
    changes, stored, groups = matched.changes, matched.stored, matched.groups
    overtaken = np.zeros(len(changes), np.bool_)
    retractions = changes.weight < 0
    if not retractions.any():
        return overtaken
    count = len(changes)
    # What is stored comes first in its group.
    seq = np.concatenate([changes.seq, np.full(len(stored), np.iinfo(np.int64).min)])
    comes = np.concatenate([changes.weight > 0, np.ones(len(stored), np.bool_)])
    order = np.lexsort((comes, seq, groups.ids))
    first = np.concatenate(([True], groups.ids[order][1:] != groups.ids[order][:-1]))
    at = np.arange(len(order))
    start = np.maximum.accumulate(np.where(first, at, 0))
    last = np.maximum.accumulate(np.where(comes[order], at, -1))
    met = np.full(len(order), -1)
    met[order] = np.where(last >= start, order[last], -1)
    rows = np.flatnonzero(retractions & (met[:count] >= 0))
    payload = concat_binary([changes.payload, stored.payload])
    overtaken[rows] = ~equal_bytes(payload.take(pa.array(rows)), payload.take(pa.array(met[rows])))
    return overtaken


def _replace(arrangement: Arrangement, matched: Matched, *, by_seq: bool, exact: bool) -> Resolved:
    """What the changes do, given the groups of rows with one identity; `exact`: no insertion is meant to replace a row.

    Without an order, equal rows of opposite sign cancel first.
    """
    if by_seq:
        return _replace_in_turn(arrangement, matched, by_seq=True, exact=exact)
    changes = matched.changes
    own = Groups(matched.of_change, matched.groups.count)
    left = net_in_groups(own, changes.payload, changes.weight, changes.seq)
    if left.all():
        return _replace_in_turn(arrangement, matched, by_seq=False, exact=exact)
    rows, again = np.flatnonzero(left), np.flatnonzero((left == 0) & (changes.weight > 0))
    resolved = _replace_in_turn(arrangement, matched.take(rows), by_seq=False, exact=exact)
    return _renew(arrangement, changes.take(again), matched.stored, resolved.among(rows))


def _replace_in_turn(arrangement: Arrangement, matched: Matched, *, by_seq: bool, exact: bool) -> Resolved:
    changes, stored, of_change, of_stored = matched.changes, matched.stored, matched.of_change, matched.of_stored
    order, present, last = _turns(matched, by_seq=by_seq)
    comes = changes.weight[order] > 0
    unmatched = np.sort(order[~comes & ~present])
    repeated = np.sort(order[comes & present]) if exact else order[:0]
    touched = np.zeros(matched.groups.count, np.bool_)
    touched[of_change] = True
    gone, of_gone = stored.filter(touched[of_stored]), of_stored[touched[of_stored]]
    new = order[last & comes]
    come = new_entries(arrangement, changes, matched.place).take(new)
    old, new = _equal_rows(gone, of_gone, come, of_change[new], matched.groups.count)
    stays, goes = np.ones(len(come), np.bool_), np.ones(len(gone), np.bool_)
    stays[new], goes[old] = False, False
    return Resolved(
        come.filter(stays),
        gone.filter(goes).units,
        _refresh(gone.take(old), come.take(new)),
        unmatched,
        repeated=repeated,
    )


def _turns(matched: Matched, *, by_seq: bool) -> tuple[Indices, Mask, Mask]:
    """The changes, identity by identity in their order; which of them find a row; and which are the last."""
    of_change, seq, insertion = matched.of_change, matched.changes.seq, matched.changes.weight > 0
    there = np.zeros(matched.groups.count, np.bool_)
    there[matched.of_stored] = True
    order = in_turn(Groups(of_change, matched.groups.count), *((seq, insertion) if by_seq else (insertion, seq)))
    owner = of_change[order]
    first = np.concatenate(([True], owner[1:] != owner[:-1]))[: len(owner)]
    present = np.where(first, there[owner], np.concatenate(([False], insertion[order][:-1]))[: len(owner)])
    return order, present, np.concatenate((first[1:], [True]))[: len(order)]


def _equal_rows(
    gone: Entries, of_gone: Indices, come: Entries, of_come: Indices, groups: int
) -> tuple[Indices, Indices]:
    """The rows of `gone` and of `come` that are in the same group and have the same payload, in pairs."""
    single = np.flatnonzero(gone.weight == 1)
    predecessor = np.full(groups, -1)
    predecessor[of_gone[single]] = single
    old = predecessor[of_come]
    new = np.flatnonzero(old >= 0)
    old = old[new]
    same = equal_bytes(gone.payload.take(pa.array(old)), come.payload.take(pa.array(new)))
    return old[same], new[same]


def _refresh(old: Entries, new: Entries) -> Entries:
    """The entries by which each of `new` takes the place of its `old`."""
    if len(old) == 0:
        return old
    return Entries.concat([old.relabel(weight=np.full(len(old), -1)), new.relabel(mark=old.mark)])


def _nothing_but_new(arrangement: Arrangement, changes: Changes, place: Uint64s) -> Resolved:
    none = Entries.empty()
    return Resolved(new_entries(arrangement, changes, place), none, none, np.empty(0, np.int64))


def _null(values: pa.BinaryArray) -> Mask:
    return to_mask(pc.is_null(values)) if values.null_count else np.zeros(len(values), np.bool_)
