"""Rows on which an expression fails, and what becomes of them: the query fails, or they are left out and told.

A row that is left out does not pass, as if a predicate had said so: what it would have replaced goes, and when it is
taken back later it fails again and is left out again. So the result is that of the query over the other rows.
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
from rowkind.service.calc import Calc, OnError
from rowkind.service.execute import calc
from rowkind.service.execute.expressions import ExpressionError, failing

_Made = TypeVar("_Made", Batch, Changes)


@dataclass(frozen=True)
class LeftOut:
    """Rows on which an expression failed, and what it said of each."""

    rows: Rows
    reasons: tuple[str, ...]


def _not_reported(_: LeftOut) -> None:
    """Report nothing. It pickles, which a lambda does not."""


@dataclass(frozen=True)
class OnFailure:
    """What is to be done about rows on which an expression fails.

    - `of`: whose rows they are: a table, or the operator of a sink. `tables`: those that have sent what it emits.
    - `excused`: rows that are left out also where the query is to fail, as `<of>:<partition>:<offset>`.
    - `tell`: is told of rows that were left out.
    - `record`: how people find what has an arrival number. `skip`: what else they can do about it.
    """

    of: str
    tell: Callable[[LeftOut], None] = field(default=_not_reported)
    excused: AbstractSet[str] = frozenset()
    record: str = "offset {0.offset} of partition {0.partition}"
    skip: str = "; with `dead_letters` in the job, `rowkind skip JOB {1}:{0.partition}:{0.offset}` leaves out this row"
    tables: tuple[str, ...] = ()

    def place(self, number: ArrivalNumber) -> str:
        """Where to look for what has an arrival number, in words."""
        return self.record.format(number) + (f" of {' or '.join(self.tables)}" if self.tables else "")


def failed_in_operator(error: RowFailed, failure: OnFailure) -> ExpressionError:
    """What an operator that failed on a row says to people, such as a function of the job's on a row of a group.

    A row cannot be left out there: nobody would know that it was when it is taken back.
    """
    where = f", on the row that came with {failure.place(ArrivalNumber.of(error.seq))}" if error.seq >= 0 else ""
    return ExpressionError(f"{failure.of}: {error}{where}. {error.advice}.")


def run(of: Calc, emitted: Emitted, failure: OnFailure) -> Batch:
    """What a calc makes of what is emitted (`calc.batch`), but for rows that are left out.

    Raises ExpressionError with the place of the first row on which the query is to fail.
    """
    batch = _run(calc.batch, of, emitted.rows, failure)
    if of.refreshes and len(emitted.refreshes):
        # A row that fails was reported when it came.
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
    """Tell of rows that an operator did not emit, since a result does not fit its type; where none may fail, raise.

    Raises ExpressionError with the place of the first one that comes.
    """
    if not len(failed):
        return
    for row in failed.filter(failed.kind == RowKind.INSERT).seq.tolist() if on_error == "fail" else ():
        _refuse(reason, ArrivalNumber.of(row), failure)
    failure.tell(LeftOut(failed, (reason,) * len(failed)))


def _refuse(reason: str, place: ArrivalNumber, failure: OnFailure) -> None:
    if f"{failure.of}:{place.partition}:{place.offset}" not in failure.excused:
        raise ExpressionError(
            f"{failure.of}: {reason}, on the row that came with {failure.place(place)}. Mend the query, or "
            f"say `on_error: dead_letter` or `on_error: null` in the job{failure.skip.format(place, failure.of)}."
        )


def _failing(of: Calc, rows: Rows, failure: OnFailure) -> tuple[Mask, tuple[str, ...]]:
    without, reasons = np.zeros(len(rows), np.bool_), []
    for row, reason in failing(np.arange(len(rows)), lambda at: calc.run(of, rows.take(at))):
        if of.on_error == "fail":
            _refuse(reason, ArrivalNumber.of(int(rows.seq[row])), failure)
        without[row] = True
        reasons.append(reason)
    return without, tuple(reasons)
