"""Compute the net changes of a batch for the query's target: a topic, or the table that a user sees.

Operators emit only +I and -D. At the end of a query, this module computes the net effect of the batch on each key.
Depending on the changelog mode, it emits:

- upsert: at most one change per key: +U or +I with the remaining row, or -D;
- retract with a key: for each key +I, -D, or -U followed by +U; nothing if the row did not change;
- retract without a key: the multiset of rows, with equal +I and -D cancelled, retractions before insertions;
- append: all changes, which must be insertions.

The functions are pure and work on columns. The Kafka writer and the in-memory engine share them.

The rest of this text defines the order of changes, both for all operators and for the output of this module.

- *Old before new.* Within a batch, the -U of a key precedes its +U, and a -D precedes a +I with the same unique key. A
  consumer that applies the changes one by one therefore never has two rows with the same unique key, and never retracts
  a row before inserting it. Every operator guarantees this order for a shard's batch, and this module guarantees it for
  its output. An operator does not know the unique keys of its result, so it emits all retractions before all insertions
  (`consolidation.spelled_out`). So does this module if the result has no key. If the result has a key, the changes of
  each key are adjacent.
- *Order between operators does not matter.* Changes with the same key may come from several shards, so no operator
  relies on the order of its input's changes. Operators emit a set of signed rows: the net effect of the batch.
- *Pieces add up.* An input's changes may arrive in pieces: rows that were unnested a few at a time, chunks that a task
  reads, the output of several tasks, or blocks. It does not matter which piece contains a change, or in which order the
  pieces arrive. Code that works on a single piece must therefore produce changes whose sum over all pieces is the
  result for the whole batch. The code may cancel equal rows of opposite sign, add up an aggregate, or keep only the
  last change of each key of an upsert stream. It must not drop the old row of an update, because the key's other
  changes may cancel with that row. To an operator, the batch is the sum of all pieces: if an input is not ordered by
  arrival, equal rows of opposite sign cancel before rows replace each other (`operators.arrangement.resolving`).
- *Within a table, `seq` defines the order*, which is the order of arrival. Only the last change of each primary key
  counts. Without a primary key, a retraction applies to a row that was inserted before the retraction. A table declared
  `exact` may send the changes of different keys in any order, but must send the changes of each key in order. If a
  table declared `exact` has no primary key, its batch is a set of signed rows. `operators.arrangement.resolving`
  describes how a +U that arrives before its -U is handled.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.changelog import ChangelogMode, RowKind
from rowkind.operators.columns.changes import Changes, Indices, Int8s, Mask
from rowkind.operators.columns.consolidation import net_weights, spelled_out
from rowkind.operators.columns.grouping import equal_bytes
from rowkind.operators.columns.hashing import mix, sketch64

Codes = npt.NDArray[np.int64]


class RetractionError(ValueError):
    """An append-only result has a retraction: the planner accepted a query that it should have refused."""


def net(changes: Changes, form: ChangelogMode, *, keyed: bool, by_seq: bool = False, ordered: bool = False) -> Changes:
    """Return the net changes with the row kinds of `form`. The changes of each key are adjacent, old before new.

    - `keyed`: whether changes are netted by `changes.key`, the result's unique key, instead of by the complete row.
    - `by_seq`: whether the changes are an upsert stream as its source sent it, instead of a signed multiset. If so, the
      last change of each key by `seq` wins, and earlier rows are not retracted.
    - `ordered`: whether the changes, which must be insertions, are sorted by sub-key, then by arrival, then by bytes.
    """
    result = _net(changes, form, keyed=keyed, by_seq=by_seq)
    return _in_order(result) if ordered else result


def _in_order(changes: Changes) -> Changes:
    """Sort the changes by sub-key, arrival number and bytes. Bytes matter only for rows derived from the same row."""
    terms = pa.table({"sub_key": changes.sub_key, "seq": changes.seq, "payload": changes.payload})
    order = pc.sort_indices(terms, [(name, "ascending") for name in terms.column_names])
    return changes.take(order.to_numpy().astype(np.int64))


def _net(changes: Changes, form: ChangelogMode, *, keyed: bool, by_seq: bool) -> Changes:
    if form == "append":
        if (changes.weight < 0).any():
            raise RetractionError("an append-only result received a retraction")
        return dataclasses.replace(changes, kind=np.zeros(len(changes), np.int8))
    if not len(changes):
        return changes
    if not keyed:
        assert not by_seq, "an upsert stream must have a key"
        return _multiset(changes)
    code = _codes(changes.key)
    if by_seq:
        return _emit(changes, *_last(changes, code))
    count = np.bincount(code)
    single = (count == 1)[code]
    kind = np.where(changes.weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8)
    if form == "upsert":
        # A change that was netted within its shard is a +U if it replaces a row. This row kind is kept.
        kind = np.where(changes.kind == RowKind.UPDATE_AFTER, changes.kind, kind)
    if single.all():
        return _emit(changes, np.arange(len(changes)), kind)
    double = (count == 2) & (np.bincount(code, changes.weight) == 0)
    alone, rest = np.flatnonzero(single), np.flatnonzero(~(single | double[code]))
    parts = [(alone, kind[alone])]
    if double.any():
        parts.append(_updates(changes, code, double, form))
    if len(rest):
        parts.append(_settled(changes, code, rest, form))
    return _emit(changes, np.concatenate([at for at, _ in parts]), np.concatenate([kinds for _, kinds in parts]))


def _updates(changes: Changes, code: Codes, double: Mask, form: ChangelogMode) -> tuple[Indices, Int8s]:
    """Return the net changes of the keys in `double`, which have one +I and one -D each.

    The result is an update, or nothing if the two rows are equal. This is the most common case of a key with several
    changes, and needs no sorting.
    """
    places = np.empty((2, len(double)), np.int64)
    places[(changes.weight > 0).astype(np.int64), code] = np.arange(len(code))
    before, after = places[:, double]
    changed = ~equal_bytes(changes.payload.take(pa.array(before)), changes.payload.take(pa.array(after)))
    before, after = before[changed], after[changed]
    if form == "upsert":
        return after, np.full(len(after), RowKind.UPDATE_AFTER, np.int8)
    kinds = np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], np.int8)
    return np.column_stack([before, after]).ravel(), np.tile(kinds, len(after))


def _last(changes: Changes, code: Codes) -> tuple[Indices, Int8s]:
    """Return the last change of each key as +U or -D. With equal seqs, an insertion comes after a retraction."""
    positive = changes.weight > 0
    order = np.lexsort((positive, changes.seq, code))
    last = order[np.append(code[order][1:] != code[order][:-1], True)]
    return last, np.where(positive[last], RowKind.UPDATE_AFTER, RowKind.DELETE).astype(np.int8)


def _multiset(changes: Changes) -> Changes:
    """Return the net changes of a batch without a key."""
    payload = changes.payload
    weight = net_weights(
        sketch64(payload), changes.weight, lambda rows: [payload.take(pa.array(rows))], changes.seq.__getitem__
    )
    rows = spelled_out(weight)
    return _emit(changes, rows, np.where(weight[rows] > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8))


def _settled(changes: Changes, code: Codes, rest: Indices, form: ChangelogMode) -> tuple[Indices, Int8s]:
    """Return the net changes among those at `rest`, and their row kinds. Equal rows of opposite sign cancel first."""
    code, payload, seq = code[rest], changes.payload.take(pa.array(rest)), changes.seq[rest]
    weight = net_weights(
        mix(code.astype(np.uint64), sketch64(payload)),
        changes.weight[rest],
        lambda rows: [code[rows], payload.take(pa.array(rows))],
        seq.__getitem__,
    )
    at = spelled_out(weight)
    at = at[np.lexsort((seq[at], weight[at] > 0, code[at]))]
    code, comes = code[at], weight[at] > 0
    inserts, deletes = (np.bincount(code[side], minlength=code.max(initial=0) + 1)[code] for side in (comes, ~comes))
    if form == "upsert":
        # In this order, a key's last change is the row that remains or, if no row remains, the key's deletion.
        last = np.append(code[1:] != code[:-1], True)[: len(code)]
        fresh = np.where(deletes > 0, RowKind.UPDATE_AFTER, RowKind.INSERT)
        return rest[at[last]], np.where(comes, fresh, RowKind.DELETE).astype(np.int8)[last]
    pair = (inserts == 1) & (deletes == 1)
    kind = np.where(
        comes,
        np.where(pair, RowKind.UPDATE_AFTER, RowKind.INSERT),
        np.where(pair, RowKind.UPDATE_BEFORE, RowKind.DELETE),
    )
    return rest[at], kind.astype(np.int8)


def _codes(values: pa.BinaryArray) -> Codes:
    """Number the distinct values in order of first appearance, and return the number of each value."""
    assert not values.null_count, "keys of a result are never null"
    codes: Codes = values.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _emit(changes: Changes, indices: Indices, kind: Int8s) -> Changes:
    whole = len(indices) == len(changes) and bool((indices == np.arange(len(changes))).all())
    return dataclasses.replace(changes if whole else changes.take(indices), kind=kind)
