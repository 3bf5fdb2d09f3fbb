"""Processing between two operators: expands, filter, projection, and each row's key and hash for the consumer.

A calc works on whole columns. It decodes only fields that an expression needs, each of them once. It evaluates all
expressions together, and copies the packed bytes of every other column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.operators.aggregate.partial import one_of_each_group, partial
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, constant
from rowkind.operators.columns.consolidation import net_weights
from rowkind.operators.columns.hashing import hash64, mix, sketch64
from rowkind.operators.errors import RowFailed
from rowkind.operators.rank.local_top_k import local_top_k
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.expand import expanded, few_at_a_time
from rowkind.service.execute.expressions import ExpressionError, evaluate, row_failed, truth
from rowkind.service.execute.grouping_sets import in_sets
from rowkind.service.execute.ranked_rows import Identity
from rowkind.service.execute.salting import salted
from rowkind.service.execute.updates import updates
from rowkind.service.execute.values import Values, passes, read
from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import Calc, LocalTopK, OnError
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.keys import Key, SubKeyPart


def run(calc: Calc, rows: Rows) -> Changes:
    """Apply a calc to rows and return the changes, without refreshes (see `batch`)."""
    return batch(calc, rows).changes


def batch(calc: Calc, rows: Rows, without: Mask | None = None) -> Batch:
    """Filter and project rows, and add the side, hash, key and sub-key for the consumer.

    An update is split if a filter drops one of its halves or if its halves have different keys. The remaining halves
    become -D and +I. If a downstream operator has a TTL, rows that cancel are passed on as refreshes. If the calc
    contains the first step of an aggregate or rank, that step is applied last. Rows in the mask `without` are always
    dropped, even if they satisfy the predicate. Raises ExpressionError.
    """
    if not calc.expands:
        return _first_step(calc, _live(calc, rows, without))
    if without is None and (summed := in_sets(calc, rows, lambda of, some: _live(of, some, None).changes)) is not None:
        return Batch(summed)
    return Batch.concat([_first_step(calc, _live(calc, *piece)) for piece in few_at_a_time(rows, without)])


def refreshed(calc: Calc, rows: Rows, without: Mask | None = None) -> Changes:
    """Apply the calc to refreshes. The caller passes them as insertions. Raises ExpressionError."""
    assert not calc.upsert, "a filtered row does not replace another row"
    again = batch(replace(calc, nets=False, partial=None), rows, without).changes
    return _first_step(calc, Batch(Changes.empty(), again)).refreshes


@dataclass(frozen=True)
class JoinCondition:
    """The additional condition of a join, which tests pairs of payloads. A pair matches only if the condition is TRUE.

    The object is picklable.
    """

    expression: Expression
    left: Record
    right: Record
    on_error: OnError = "fail"

    def __call__(self, left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
        """Return for every i whether `left[i]` and `right[i]` match. Raises RowFailed if the query must fail."""
        columns: dict[str, pa.Array] = {}
        for record, payloads in ((self.left, left), (self.right, right)):
            if names := [name for name in self.expression.columns if name in record.names]:
                decoded = read(record, payloads)
                columns |= {name: decoded.column(name) for name in names}

        nulls = self.on_error != "fail"

        def matches(of: Mapping[str, pa.Array], count: int) -> Mask:
            return truth(evaluate([self.expression], of, count, nulls=nulls)[self.expression])

        def some(rows: Indices) -> Mask:
            return matches({name: column.take(pa.array(rows)) for name, column in columns.items()}, len(rows))

        try:
            return matches(columns, len(left))
        except ExpressionError as error:
            raise row_failed(error, len(left), some) from None


def condition(expression: Expression, left: Record, right: Record, on_error: OnError = "fail") -> JoinCondition:
    """Return the condition of a join between rows of `left` and `right`. The two records share no column name."""
    # If the condition fails on a pair and the query must not fail, the condition is NULL.
    return JoinCondition(replace(expression, type=replace(expression.type, nullable=True)), left, right, on_error)


def _live(calc: Calc, rows: Rows, without: Mask | None) -> Batch:
    if not len(rows):
        return Batch.empty()
    if calc.expands:
        rows, without = expanded(calc, rows, without), None
    update = updates(rows)
    alone = np.zeros(len(rows), np.bool_)
    if calc.predicate is not None or without is not None:
        rows, update, alone = _filter(calc, rows, update, without)
    if calc.upsert:
        alone = rows.kind == RowKind.DELETE
    if not alone.any():
        return _sent(calc, rows, update)
    by_key = _sent_by_key(calc, rows.filter(alone), update[alone])
    return Batch.concat([_sent(calc, rows.filter(~alone), update[~alone]), by_key])


def _sent_by_key(calc: Calc, rows: Rows, update: Int64s) -> Batch:
    """Return the batch for rows of which only the key, and possibly a time, is known.

    If an expression fails on the key of a row, the row is dropped. No row with this key has ever passed the calc,
    because the expression would have failed on that row too. So the consumer has stored no row that must be replaced.
    """
    known = {*calc.replaced_by, *([calc.delete_time] if calc.delete_time is not None else [])}
    try:
        return _sent(calc, rows, update, frozenset(known))
    except ExpressionError:
        if len(rows) == 1:
            return Batch.empty()
        first = np.arange(len(rows)) < len(rows) // 2
        return Batch.concat([_sent_by_key(calc, rows.filter(half), update[half]) for half in (first, ~first)])


def _sent(calc: Calc, rows: Rows, update: Int64s, known: frozenset[str] | None = None) -> Batch:
    """Return the batch for the consumer.

    If `known` is set, only the columns in it are known. All other columns are NULL, or a zero value if they are NOT
    NULL.
    """
    if not len(rows):
        return Batch.empty()
    same = _hands_on(calc)
    expressions = (
        *(() if same else calc.columns),
        *calc.key.parts,
        *(each.expression for each in calc.sub_key),
        *([] if calc.arrival is None else [calc.arrival]),
    )
    values = Values(calc.expanded, expressions, rows, nulls=calc.on_error == "null", known=known)
    payload = rows.payload if same else values.packed(calc.output, calc.columns)
    sub_key = _sub_key(calc.sub_key, values) if calc.sub_key else constant(b"", len(rows))
    key, null = _key(calc.key, values)
    hashes = hash64(key) if calc.key.parts else np.full(len(rows), hash64(key[:1]), np.uint64)
    if null.any():
        at = np.flatnonzero(null)
        hashes[at] = hash64((sub_key if calc.sub_key else payload).take(pa.array(at)))
        key = pc.if_else(pa.array(null), pa.scalar(None, pa.binary()), key)
    seq = rows.seq if calc.arrival is None else values.numbers(calc.arrival)
    changes = Changes(np.full(len(rows), calc.side, np.int8), rows.kind, hashes, key, sub_key, seq, payload)
    if calc.key.drop_null and null.any():
        changes, update = changes.filter(~null), update[~null]
    again = Changes.empty()
    if calc.nets:
        kept = _survivors(changes)
        if calc.refreshes and not kept.all():
            again = changes.filter(~kept & (changes.weight > 0))
            again = replace(again, kind=np.full(len(again), RowKind.INSERT, np.int8))
        changes, update = changes.filter(kept), update[kept]
    changes = _with_parted_halves(changes, update)
    if calc.key.salt is not None:
        changes, again = salted(calc.key.salt, changes), salted(calc.key.salt, again)
    return Batch(changes, again)


def _first_step(calc: Calc, of: Batch) -> Batch:
    changes, again = of.changes, of.refreshes
    if isinstance(calc.partial, Aggregation) and len(again):
        again = one_of_each_group(again)
    match calc.partial:
        case Aggregation() if len(changes):
            try:
                changes = partial(spec_of(calc.partial), changes)
            except RowFailed:
                # A function of the job failed. The operator will process the row again and report the failure.
                return of
        case LocalTopK(ranking, identity) if len(changes):
            changes = local_top_k(ranking, changes, Identity(calc.output, identity) if identity else None)
    return Batch(changes, again)


def _hands_on(calc: Calc) -> bool:
    """Return whether the calc's output equals its input, byte for byte."""
    input_ = calc.expanded
    return tuple(each.column for each in calc.columns) == input_.names and calc.output.same_rows(input_)


def _key(key: Key, values: Values) -> tuple[pa.BinaryArray, Mask]:
    """Return each row's key, and a mask of the rows with a NULL in a key part where NULL must not match NULL."""
    null = np.zeros(len(values), np.bool_)
    if not key.parts:
        return constant(key.constant or b"", len(values)), null
    for part, null_safe in zip(key.parts, key.null_safe, strict=True):
        if not null_safe and (column := values.of(part)).null_count:
            null |= column.is_null().to_numpy(zero_copy_only=False)
    if key.record is not None:
        # Rows with equal keys replace each other in a topic only if the key bytes are equal.
        return SameRows(key.record)(values.packed(key.record, key.parts)), null
    return _comparable(key.parts, values), null


def _comparable(expressions: Sequence[Expression], values: Values) -> pa.BinaryArray:
    return join_bytes([comparable(values.of(expression)) for expression in expressions])


def _sub_key(orders: Sequence[SubKeyPart], values: Values) -> pa.BinaryArray:
    return join_bytes(
        [
            comparable(values.of(each.expression), descending=each.descending, nulls_first=each.nulls_first)
            for each in orders
        ]
    )


def _filter(calc: Calc, rows: Rows, update: Int64s, without: Mask | None) -> tuple[Rows, Int64s, Mask]:
    """Return the rows that are passed on, their update numbers, and a mask of rows that represent only their key.

    A row that replaces another row without a retraction must not be dropped, because the consumer would keep the
    replaced row. In an upsert stream, the row becomes a delete. In other streams, the row is passed on, followed by its
    own delete, so that the consumer neither keeps an extra row nor lacks one.
    """
    through = _passes(calc, rows) if without is None else _passes_of_others(calc, rows, without)
    none = np.zeros(len(rows), np.bool_)
    if through.all():
        return rows, update, none
    if calc.upsert:
        return replace(rows, kind=np.where(through, rows.kind, np.int8(RowKind.DELETE))), update, none
    if calc.nets:
        return rows.filter(through), update[through], none[through]
    replaces = ~through & (rows.kind == RowKind.UPDATE_AFTER) & bool(calc.replaced_by)
    replaces[_behind_their_own(calc, rows, np.flatnonzero(replaces & (update > 0)))] = False
    at = np.repeat(np.arange(len(rows)), through + 2 * replaces)
    again = np.zeros(len(at), np.bool_)
    again[1:] = at[1:] == at[:-1]
    chosen = rows.take(at)
    return (
        Rows(np.where(again, np.int8(RowKind.DELETE), chosen.kind), chosen.seq + again, chosen.payload),
        update[at],
        replaces[at],
    )


def _behind_their_own(calc: Calc, rows: Rows, halves: Indices) -> Indices:
    """Return those +U halves that have the same key as the -U directly before them."""
    if not len(halves):
        return halves
    before, after = (read(calc.input, rows.payload.take(pa.array(at))) for at in (halves - 1, halves))
    same = np.ones(len(halves), np.bool_)
    for name in calc.replaced_by:
        equal = pc.equal(comparable(before.column(name)), comparable(after.column(name)))
        same &= equal.to_numpy(zero_copy_only=False)
    return halves[same]


def _passes_of_others(calc: Calc, rows: Rows, without: Mask) -> Mask:
    through = np.zeros(len(rows), np.bool_)
    through[~without] = _passes(calc, rows.filter(~without))
    return through


def _passes(calc: Calc, rows: Rows) -> Mask:
    """Return a mask of the rows that satisfy the predicate. In an upsert stream, deletes pass without being tested."""
    if calc.predicate is None or not len(rows):
        return np.ones(len(rows), np.bool_)
    asked = np.ones(len(rows), np.bool_) if not calc.upsert else rows.kind != RowKind.DELETE
    if not asked.all():
        return _passes_of_others(calc, rows, ~asked)
    return passes(calc.predicate, calc.expanded, rows.payload, nulls=calc.on_error == "null")


def _survivors(changes: Changes) -> Mask:
    """Return a mask of the changes that remain after equal rows with opposite signs have canceled each other.

    Among equal changes, those with the highest `seq` remain.
    """
    weight = changes.weight
    if not (weight < 0).any():
        return np.ones(len(changes), np.bool_)
    columns = changes.payload, changes.sub_key, changes.key
    left = net_weights(
        mix(changes.hash, sketch64(changes.payload)),
        weight,
        lambda rows: [column.take(pa.array(rows)) for column in columns],
        changes.seq.__getitem__,
    )
    kept: Mask = left != 0
    return kept


def _with_parted_halves(changes: Changes, update: Int64s) -> Changes:
    """Change update halves to -D or +I unless the other half is adjacent and has the same key and sub-key."""
    if not update.any():
        return changes
    whole = np.zeros(len(changes), np.bool_)
    first = np.flatnonzero((update[:-1] == update[1:]) & (update[1:] > 0) & (changes.hash[:-1] == changes.hash[1:]))
    for column in (changes.key, changes.sub_key):
        before, after = column.take(pa.array(first)), column.take(pa.array(first + 1))
        first = first[pc.equal(before, after).fill_null(False).to_numpy(zero_copy_only=False)]
    whole[first] = whole[first + 1] = True
    parted = (update > 0) & ~whole
    alone = np.where(changes.weight > 0, np.int8(RowKind.INSERT), np.int8(RowKind.DELETE))
    return replace(changes, kind=np.where(parted, alone, changes.kind))
