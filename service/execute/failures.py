"""Handling of rows on which an expression fails: either the query fails, or the rows are omitted and reported.

An omitted row is treated as if a predicate had dropped it. If the omitted row would have replaced another row, that row
is deleted. If the omitted row is retracted later, the expression fails again, and the retraction is omitted too. So the
query's result is the same as without the omitted rows in the input.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Mask, Rows
from rowkind.operators.errors import RowFailed
from rowkind.service.execute import calc
from rowkind.service.execute.expressions import ExpressionError, failing
from rowkind.service.physical.calc import Calc, OnError

_Made = TypeVar("_Made", Batch, Changes)


@dataclass(frozen=True)
class LeftOut:
    """Rows on which an expression failed, and the reason for each."""

    rows: Rows
    reasons: tuple[str, ...]


def _not_reported(_: LeftOut) -> None:
    """Report nothing. Unlike a lambda, this function is picklable."""


@dataclass(frozen=True)
class OnFailure:
    """The policy for rows on which an expression fails.

    - `of`: the table, or the sink's operator, to which the rows belong. `tables`: the tables whose records are the
      origin of the operator's output.
    - `excused`: rows that are omitted even if the policy is to fail, written as `<of>:<partition>:<offset>`.
    - `tell`: a function that is called with the omitted rows.
    - `record`: a template that turns an arrival number into the position of a record. `skip`: a template for the
      alternative remedy in error messages.
    """

    of: str
    tell: Callable[[LeftOut], None] = field(default=_not_reported)
    excused: AbstractSet[str] = frozenset()
    record: str = "offset {0.offset} of partition {0.partition}"
    skip: str = "; with `dead_letters` in the job, `rowkind skip JOB {1}:{0.partition}:{0.offset}` skips this row"
    tables: tuple[str, ...] = ()

    def place(self, number: ArrivalNumber) -> str:
        """Return the position of the record with the given arrival number, for use in messages."""
        return self.record.format(number) + (f" of {' or '.join(self.tables)}" if self.tables else "")


def failed_in_operator(error: RowFailed, failure: OnFailure) -> ExpressionError:
    """Return the error for an operator that failed on a row, for example in a job function over a group.

    The row cannot be omitted at this point, because it would not be possible to omit the row's later retraction.
    """
    where = f", on the row from {failure.place(ArrivalNumber.of(error.seq))}" if error.seq >= 0 else ""
    return ExpressionError(f"{failure.of}: {error}{where}. {error.advice}.")


def run(of: Calc, emitted: Emitted, failure: OnFailure) -> Batch:
    """Apply a calc to the emitted rows (`calc.batch`), except for rows that are omitted.

    Raises ExpressionError with the position of the first row on which the query must fail.
    """
    batch = _run(calc.batch, of, emitted.rows, failure)
    if of.refreshes and len(emitted.refreshes):
        # A row that fails was already reported when it was inserted.
        again = _run(calc.refreshed, of, emitted.refreshes, replace(failure, tell=_not_reported))
        batch = replace(batch, refreshes=Changes.concat([batch.refreshes, again]))
    if emitted.truncation is None:
        return batch
    return replace(batch, truncations={of.side: emitted.truncation})


def _run(step: Callable[[Calc, Rows, Mask | None], _Made], of: Calc, rows: Rows, failure: OnFailure) -> _Made:
    try:
        return step(of, rows, None)
    except ExpressionError as error:
        without, reasons = _failing(of, rows, failure)
        if not reasons:
            raise error from None
    failure.tell(LeftOut(rows.filter(without), reasons))
    return step(of, rows, without)


def misfits(failed: Rows, reason: str, on_error: OnError, failure: OnFailure) -> None:
    """Report rows that an operator did not emit because a result does not fit the result's type.

    If `on_error` is "fail", raises ExpressionError with the position of the first inserted row that is not excused.
    """
    if not len(failed):
        return
    for row in failed.filter(failed.kind == RowKind.INSERT).seq.tolist() if on_error == "fail" else ():
        _refuse(reason, ArrivalNumber.of(row), failure)
    failure.tell(LeftOut(failed, (reason,) * len(failed)))


def _refuse(reason: str, place: ArrivalNumber, failure: OnFailure) -> None:
    if f"{failure.of}:{place.partition}:{place.offset}" not in failure.excused:
        raise ExpressionError(
            f"{failure.of}: {reason}, on the row from {failure.place(place)}. Fix the query, or "
            f"set `on_error: dead_letter` or `on_error: null` in the job{failure.skip.format(place, failure.of)}."
        )


def _failing(of: Calc, rows: Rows, failure: OnFailure) -> tuple[Mask, tuple[str, ...]]:
    without, reasons = np.zeros(len(rows), np.bool_), []
    for row, reason in failing(np.arange(len(rows)), lambda at: calc.run(of, rows.take(at))):
        if of.on_error == "fail":
            _refuse(reason, ArrivalNumber.of(int(rows.seq[row])), failure)
        without[row] = True
        reasons.append(reason)
    return without, tuple(reasons)
