"""Resolve the raw changes of an operator input to the exact entries to append to the input's arrangement.

Each retraction is resolved to a stored row. If there are several equal rows, the oldest by (written_at, seq) is chosen.
The retraction takes the stored row's written_at, seq and mark, so that the two entries cancel exactly and expire
together. A retraction for which no row is found is unmatched, and changes nothing.

In layouts *multiset*, *ordered* and *last write*, a retraction removes a row with the same key and payload and, in
layout *ordered*, the same sub-key. Payloads may be alike although their bytes differ (`Arrangement.alike`). In this
case, the removed row has the stored bytes, not those of the retraction.

In layouts *one row per key* and *unique key*, rows are identified by (key, sub-key). The last change of a row in the
batch determines the result. An insertion replaces the stored row with the same identity, if there is one. The removed
row is the stored row even if the retraction has a different payload, unless the input is `exact`. In any layout, rows
with a null key and an empty sub-key have no identity; they are treated as a multiset.

An `exact` input guarantees to retract rows as they were sent, and to send the changes of each key in order. If a
retraction from an `exact` input finds a row with a different payload, the update's +U arrived first and has already
replaced the retracted row. The retraction must not remove the new row, so the retraction is unmatched. (This is not
detected if the two rows are equal in the columns that are stored.)

If the input is ordered by seq, changes are applied in that order; of changes with the same seq, retractions are applied
before insertions. Otherwise, the batch is an unordered set of signed rows. The batch may arrive in pieces, so its
changes may include equal rows of opposite sign. In a multiset, insertions are then applied before retractions. In the
other layouts, equal rows with the same identity cancel first, and the cancelled insertions count as refreshes. Of the
remaining changes, retractions are applied before insertions.

Refreshes are applied last. Each refresh renews the written_at of a stored row with the same key, sub-key and payload.
The seq does not change, because the row is still the same. If there are several equal rows, the refresh renews the row
that would be retracted next. If there is no equal row, or if it has expired, the refresh has no effect.

`replace_among` is for operators that store rows in layout *ordered*, and read all rows of the touched keys anyway. It
identifies rows by something other than their sub-key.
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
    """The effect of an input's changes on its arrangement.

    - `added` and `removed` are the inserted and retracted rows, with positive weights. The marks of added rows are 0.
    - `refreshed` contains entries to append as they are. They retract rows and insert equal rows with the same
      identity, in order to rewrite written_at and seq or, for a refresh, only written_at. An inserted row inherits the
      retracted row's mark.
    - `unmatched` contains the indices of the retractions for which no row was found. `overtaken` contains a subset of
      these indices: a different row with the same identity was found, so the retracted row cannot have expired.
    - `repeated` contains the indices of the insertions that replaced a row with the same identity, although that row
      had not been retracted. For an input whose insertions may replace rows, `repeated` is empty.
    """

    added: Entries
    removed: Entries
    refreshed: Entries
    unmatched: Indices
    overtaken: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    repeated: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    def among(self, rows: Indices) -> Resolved:
        """Return the same effect, with indices into a larger set in which the changes are at `rows`."""
        return replace(
            self, unmatched=rows[self.unmatched], overtaken=rows[self.overtaken], repeated=rows[self.repeated]
        )

    @property
    def rewritten(self) -> Entries:
        """The rows that exist both before and after the batch, with their values after the batch."""
        return self.refreshed.filter(self.refreshed.weight > 0)


def resolve(arrangement: Arrangement, batch: Batch, *, by_seq: bool, exact: bool = False) -> Resolved:
    """Return the effect of an input's batch on the arrangement, without appending anything.

    `by_seq` says whether the changes are ordered by seq. If not, `exact` has no effect.
    """
    resolved, again = _resolve(arrangement, batch.changes, by_seq=by_seq, exact=exact), batch.refreshes
    if not len(again):
        return resolved
    place = arrangement.places(again.hash, again.sub_key, again.payload)
    stored = arrangement.at(place, again.payload if arrangement.layout == "ordered" else None)
    return _renew(arrangement, again, stored, resolved)


def entries_of(arrangement: Arrangement, changes: Changes) -> Entries:
    """Return the changes as new rows of the arrangement, without appending them."""
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
    """Return the batch's effect on the arrangement if rows are identified by (key, identity).

    `stored` must contain all rows of the batch's keys, and may contain rows of other keys. `identities` contains the
    identities of the changes, then those of the stored rows.
    """
    changes = batch.changes
    identity = concat_binary(identities)
    codes = mix(np.concatenate([changes.hash, stored.hash]), hash64(identity))
    groups = group(codes, [concat_binary([changes.key, stored.key]), identity])
    place = arrangement.places(changes.hash, changes.sub_key, changes.payload)
    resolved = _replace(arrangement, Matched(changes, place, stored, groups), by_seq=by_seq, exact=False)
    return _renew(arrangement, batch.refreshes, stored, resolved) if len(batch.refreshes) else resolved


def _renew(arrangement: Arrangement, again: Changes, stored: Entries, resolved: Resolved) -> Resolved:
    """Add the effect of the refreshes `again` to `resolved`.

    `stored` contains all rows to which the refreshes may refer, as they were before the batch.
    """
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
    # Rows that the batch has already written need not be written again.
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
    """Return a mask of the retractions for which the multiset has no row."""
    of_change, seq = matched.of_change, matched.changes.seq
    there = np.zeros(matched.groups.count, np.int64)
    np.add.at(there, matched.of_stored, matched.stored.weight)
    retraction = matched.changes.weight < 0
    order = np.lexsort((~retraction, seq, of_change) if by_seq else (seq, retraction, of_change))
    unmatched = np.zeros(len(order), np.bool_)
    unmatched[order] = _below_zero(of_change[order], np.where(retraction, -1, 1)[order], there)
    return unmatched


def _take_oldest(arrangement: Arrangement, matched: Matched, counts: Mask) -> Resolved:
    """Return the effect of changes on a multiset. In each group, retractions remove the oldest rows.

    `counts` is a mask of the changes; retractions outside the mask are ignored.
    """
    changes, stored, groups = matched.changes, matched.stored, matched.groups.count
    retraction = changes.weight < 0
    taken = np.bincount(matched.of_change[retraction & counts], minlength=groups)
    # Each group has a queue with one element per row, oldest first. Retractions take rows from the head of the queue.
    # An entry that stands for several equal rows is expanded only up to the number of rows that could be taken.
    new = new_entries(arrangement, changes, matched.place).filter(~retraction)
    most = np.minimum(stored.weight, taken[matched.of_stored])
    units = Entries.concat([stored.relabel(weight=most).units, new])
    is_new = np.repeat([False, True], [len(units) - len(new), len(new)])
    owner = np.concatenate([np.repeat(matched.of_stored, most), matched.of_change[~retraction]])
    queue = np.lexsort((units.seq, units.written_at, owner))
    units, is_new, owner = units.take(queue), is_new[queue], owner[queue]
    head = members(np.bincount(owner, minlength=groups))[1] < taken[owner]
    gone, come = np.flatnonzero(head & ~is_new), np.flatnonzero(~head & is_new)

    # Removed and inserted rows of a group are paired as refreshes, in queue order. The surplus is removed or added.
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
    """Return a mask of the steps that would make their owner's running count negative, and are therefore skipped.

    Each owner's count begins at the owner's value in `start`. A step is skipped if and only if the count including all
    earlier steps, even skipped ones, reaches a new minimum below zero.
    """
    first = np.concatenate(([True], owner[1:] != owner[:-1]))
    total = np.cumsum(steps)
    before = (total - steps)[first][np.cumsum(first) - 1]
    level = start[owner] + total - before
    # Each owner's count is shifted far below the previous one, so that one running minimum serves all of them.
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
    """Return a mask of the retractions that find a row other than the one that they retract.

    A retraction finds the last row that the batch inserts before the retraction, by seq. If the batch inserts no row
    before it, the retraction finds the stored row.
    """
    changes, stored, groups = matched.changes, matched.stored, matched.groups
    overtaken = np.zeros(len(changes), np.bool_)
    retractions = changes.weight < 0
    if not retractions.any():
        return overtaken
    count = len(changes)
    # Sort the stored row to the beginning of its group.
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
    """Return the effect of the changes, given groups of rows with the same identity.

    If `exact` is set, insertions that replace rows are returned in `repeated`. If `by_seq` is not set, equal rows of
    opposite sign cancel first.
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
    """Return the order in which to apply the changes, group by group, and two masks of the changes in that order.

    The first mask marks the changes for which a row with the same identity exists. The second mask marks the last
    change of each identity.
    """
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
    """Return the indices of pairs of a row in `gone` and a row in `come` that have the same group and payload."""
    single = np.flatnonzero(gone.weight == 1)
    predecessor = np.full(groups, -1)
    predecessor[of_gone[single]] = single
    old = predecessor[of_come]
    new = np.flatnonzero(old >= 0)
    old = old[new]
    same = equal_bytes(gone.payload.take(pa.array(old)), come.payload.take(pa.array(new)))
    return old[same], new[same]


def _refresh(old: Entries, new: Entries) -> Entries:
    """Return entries that replace each row in `old` with the corresponding row in `new`."""
    if len(old) == 0:
        return old
    return Entries.concat([old.relabel(weight=np.full(len(old), -1)), new.relabel(mark=old.mark)])


def _nothing_but_new(arrangement: Arrangement, changes: Changes, place: Uint64s) -> Resolved:
    none = Entries.empty()
    return Resolved(new_entries(arrangement, changes, place), none, none, np.empty(0, np.int64))


def _null(values: pa.BinaryArray) -> Mask:
    return to_mask(pc.is_null(values)) if values.null_count else np.zeros(len(values), np.bool_)
