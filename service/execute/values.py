"""Evaluation of expressions over packed rows. Rows are decoded once; all expressions are evaluated in one statement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.codec import Decoded
from rowkind.avro.defaults import nothing
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Field, Record
from rowkind.operators.columns.changes import Int64s, Mask, Rows
from rowkind.operators.columns.hashing import digest128
from rowkind.service.execute.expressions import evaluate, truth
from rowkind.service.physical.calc import ARRIVAL, ROW_DIGEST
from rowkind.service.physical.expression import Expression


class Values:
    """The decoded columns and evaluated expressions of some rows. All expressions are passed to the constructor.

    If `nulls` is set and a nullable expression fails on a row, its value is NULL. If `known` is set, only the columns
    in it are known. Expressions that read other columns are NULL, or a zero value if they are NOT NULL. Raises
    ExpressionError.
    """

    def __init__(
        self,
        record: Record,
        expressions: Sequence[Expression],
        rows: Rows,
        *,
        nulls: bool,
        known: frozenset[str] | None = None,
    ) -> None:
        self._record = record
        self._known = known
        self._seq = rows.seq
        computed = [each for each in expressions if each.column is None and self._is_known(each)]
        self._decoded = read(record, rows.payload) if expressions else None
        self._computed = evaluate(computed, self._columns(computed), len(rows), nulls=nulls) if computed else {}

    def packed(self, record: Record, expressions: Sequence[Expression]) -> pa.BinaryArray:
        """Return the expressions' values as packed rows of `record`."""
        if self._decoded is None:
            return codec.encode(record, {}, len(self))
        return self._decoded.assemble(
            record, [self._source(*each) for each in zip(record.fields, expressions, strict=True)]
        )

    def of(self, expression: Expression) -> pa.Array:
        """Return the values of one expression."""
        return self._computed[expression] if expression.column is None else self._column(expression.column)

    def numbers(self, expression: Expression) -> Int64s:
        """Return the values of a BIGINT expression. NULL becomes 0."""
        values = self.of(expression)
        numbers: Int64s = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
        return numbers

    def _source(self, field: Field, expression: Expression) -> pa.Array | str | bytes:
        if not self._is_known(expression):
            return nothing(field.type)
        if expression.column == ROW_DIGEST:
            return self._digest()
        if expression.column == ARRIVAL:
            return pa.array(self._seq)
        return self._computed[expression] if expression.column is None else expression.column

    def _digest(self) -> pa.BinaryArray:
        """Return each row's digest over all columns. Rows that are equal in SQL have equal digests."""
        assert self._decoded is not None, "the constructor was given every expression"
        return digest128(SameRows(self._record)(self._decoded.assemble(self._record, self._record.names)))

    def _is_known(self, expression: Expression) -> bool:
        return self._known is None or self._known.issuperset(expression.columns)

    def _columns(self, expressions: Sequence[Expression]) -> dict[str, pa.Array]:
        names = dict.fromkeys(name for expression in expressions for name in expression.columns)
        return {name: self._column(name) for name in names}

    def _column(self, name: str) -> pa.Array:
        if name == ARRIVAL:
            return pa.array(self._seq)
        assert self._decoded is not None, "the constructor was given every expression"
        return self._decoded.column(name)

    def __len__(self) -> int:
        return len(self._seq)


def passes(predicate: Expression, record: Record, payloads: pa.BinaryArray, *, nulls: bool) -> Mask:
    """Return a mask of the rows that satisfy a predicate. Raises ExpressionError."""
    decoded = read(record, payloads)
    columns = {name: decoded.column(name) for name in predicate.columns}
    return truth(evaluate([predicate], columns, len(payloads), nulls=nulls)[predicate])


def read(record: Record, payloads: pa.BinaryArray) -> Decoded:
    """Decode packed rows that the query itself has produced."""
    decoded = codec.read(record, payloads)
    bad = np.flatnonzero(decoded.bad)
    assert not len(bad), f"a row inside the query cannot be read: {decoded.reason(int(bad[0]))}"
    return decoded
