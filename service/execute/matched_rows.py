"""Access to packed rows for MATCH_RECOGNIZE: decoding of input rows, and packing of output rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.codec import Decoded
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Indices, Int8s
from rowkind.operators.errors import RowFailed
from rowkind.operators.match.calls import MatchNumber, Navigation
from rowkind.operators.match.output import CallColumn
from rowkind.operators.match.partial_match import CallResults
from rowkind.operators.match.recognize import MatchSpec
from rowkind.operators.match.search import FAILED, FALSE, TRUE, PatternSpec
from rowkind.service.execute.column_times import MicrosOf
from rowkind.service.execute.expressions import ADVICE, ExpressionError, evaluate, failing, truth
from rowkind.service.execute.overflow_checks import fallible_calls
from rowkind.service.execute.values import read
from rowkind.service.physical.calc import OnError
from rowkind.service.physical.matching import CalledColumn, Matching
from rowkind.service.physical.operators import PhysicalMatch


def match_spec(node: PhysicalMatch) -> MatchSpec:
    """Return the spec of the MATCH_RECOGNIZE operator."""
    matching, row = node.matching, node.input.calc.output
    conditions = (None if each is None else tuple(call.call for call in each.calls) for each in matching.conditions)
    calls = tuple(each.call for each in matching.calls)
    sought = matching.sought
    return MatchSpec(
        PatternSpec(
            sought.program,
            # The plan has checked that conditions have no calls of other types.
            tuple(conditions),  # type: ignore[arg-type]
            sought.skip,
            sought.within,
            goes_on=node.calc.on_error != "fail",
        ),
        MicrosOf(row, node.closing.late),
        MatchReader(row, node.schema, matching, node.calc.on_error),
        calls,
        sought.all_rows,
        numbered=any(isinstance(call, MatchNumber) for call in calls),
        fallible=fallible_calls(matching.calls, node.calc),
    )


@dataclass(frozen=True)
class MatchReader:
    """Decodes packed rows of the record `row` for a search. The rows that a match emits have the record `output`."""

    row: Record
    output: Record
    matching: Matching
    on_error: OnError

    def __call__(self, payloads: pa.BinaryArray) -> MatchRows:
        """Return the decoded rows."""
        return MatchRows(self, read(self.row, payloads))


@dataclass(frozen=True)
class MatchRows:
    """The decoded rows of a search.

    Conditions are evaluated for many rows at once, including rows that the search may never reach. So if a condition
    fails on a row, no error is raised until the search reaches that row.
    """

    of: MatchReader
    rows: Decoded
    _values: dict[str, list[Any]] = field(default_factory=dict)

    def values(self, column: str) -> Sequence[Any]:
        """Return a column's values. Times are returned as numbers."""
        if column not in self._values:
            self._values[column] = _plain(self.rows.column(column)).to_pylist()
        return self._values[column]

    def test(self, variable: int, rows: Indices, arguments: Sequence[Sequence[Any] | Indices]) -> Int8s:
        """Return for each row whether a variable's condition is true, is not true, or has failed."""
        columns = self._columns(variable, rows, arguments)
        try:
            return self._held(variable, columns, len(rows))
        except ExpressionError:
            bad = [row for row, _ in failing(np.arange(len(rows)), lambda some: self._some(variable, columns, some))]
        held = np.full(len(rows), FAILED if self.of.on_error == "fail" else FALSE, np.int8)
        good = np.delete(np.arange(len(rows)), bad)
        held[good] = self._some(variable, columns, good)
        return held

    def fail(self, variable: int, row: int, arguments: CallResults) -> None:
        """Raise RowFailed for a row on which a variable's condition failed."""
        columns = self._columns(variable, np.array([row]), [[each] for each in arguments])
        try:
            self._held(variable, columns, 1)
        except ExpressionError as error:
            raise RowFailed(str(error), row, advice=ADVICE) from None

    def packed(self, rows: Indices, calls: Sequence[CallColumn]) -> pa.BinaryArray:
        """Return the packed output rows: the carried columns of the given rows, and the results of the calls."""
        matching = self.of.matching
        columns = {name: self.rows.column(name).take(pa.array(rows)) for name in matching.carried}
        columns |= {each.name: self._called(each, call) for each, call in zip(matching.calls, calls, strict=True)}
        return codec.encode(self.of.output, columns, len(rows))

    def _columns(
        self, variable: int, rows: Indices, arguments: Sequence[Sequence[Any] | Indices]
    ) -> Mapping[str, pa.Array]:
        defined = self.of.matching.conditions[variable]
        assert defined is not None, "only variables with a condition are evaluated"
        called = {each.name: self._called(each, given) for each, given in zip(defined.calls, arguments, strict=True)}
        at = pa.array(rows)
        own = {name: self.rows.column(name).take(at) for name in defined.condition.columns if name not in called}
        return own | called

    def _some(self, variable: int, columns: Mapping[str, pa.Array], some: Indices) -> Int8s:
        at = pa.array(some)
        return self._held(variable, {name: column.take(at) for name, column in columns.items()}, len(some))

    def _held(self, variable: int, columns: Mapping[str, pa.Array], count: int) -> Int8s:
        defined = self.of.matching.conditions[variable]
        assert defined is not None, "only variables with a condition are evaluated"
        held = truth(evaluate([defined.condition], columns, count)[defined.condition])
        return np.where(held, TRUE, FALSE).astype(np.int8)

    def _called(self, column: CalledColumn, given: CallColumn) -> pa.Array:
        if isinstance(column.call, Navigation):
            rows = np.asarray(given, np.int64)
            return self.rows.column(column.call.column).take(pa.array(rows, mask=rows < 0))
        type_ = column.type.arrow
        plain = pa.int32() if pa.types.is_date32(type_) else pa.int64() if pa.types.is_temporal(type_) else type_
        values = given.tolist() if isinstance(given, np.ndarray) else list(given)
        return pa.array(values, plain).cast(type_)


def _plain(values: pa.Array) -> pa.Array:
    """Convert values to types that Python can represent without loss. Dates and times become numbers."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_temporal(values.type) else values
