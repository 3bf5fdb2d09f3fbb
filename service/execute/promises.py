"""Detection of violations of a table's declared constraints, in operators that read the stored row anyway.

    primary_key    a +I for a row that exists
    exact          a +U for a row that was not retracted before; a -U or -D for a row that does not exist or differs
    not_null       a NULL in a NOT NULL column: the record is not a row of the table, and becomes a dead letter

The plan relies on these constraints. After a violation of `primary_key` or `exact`, results may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rowkind.errors import RowkindError
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes
from rowkind.operators.operator import Output
from rowkind.service.execute.metrics import parse, sample
from rowkind.service.physical.source_table import SourceTable

Promise = Literal["primary_key", "exact", "not_null"]

OnBroken = Literal["warn", "fail"]

_WHERE = "rowkind_broken_promise_offset{"

_MEANING: Mapping[Promise, str] = {
    "primary_key": (
        "inserts a row whose primary key already exists, and replaces that row; results may be wrong from now on"
    ),
    "exact": (
        "retracts a row that does not exist, or replaces a row that was not retracted, although the table is declared "
        "`exact`; results may be wrong from now on"
    ),
    "not_null": "has a NULL in a column that is NOT NULL, so it is not a row",
}


class BrokenPromiseError(RowkindError):
    """A table's topic violates a declared constraint, and the job has `promises: fail`. Fix the producer or the job."""


@dataclass(frozen=True)
class Broken:
    """The number of violations of a constraint, and the first record that violated it."""

    table: str
    promise: Promise
    count: int
    partition: int
    offset: int

    def __str__(self) -> str:
        remedy = "fix its producer, or remove the declaration"
        if self.promise != "not_null":
            remedy += "; then rebuild with `rowkind run --reset-state`"
        return (
            f"table {self.table}: the constraint {self.promise} is violated: the record at offset {self.offset} of "
            f"partition {self.partition} {_MEANING[self.promise]}. See rowkind_broken_promises_total for the number of "
            f"such records, and {remedy}"
        )

    @property
    def error(self) -> BrokenPromiseError:
        """The error to raise if the job has `promises: fail`."""
        return BrokenPromiseError(f"{self}. The job has `promises: fail`; with `promises: warn` it continues.")

    @property
    def counters(self) -> dict[str, float]:
        """The number of violations and the offset of the first one, as counters."""
        of = {"table": self.table, "promise": self.promise}
        return {
            sample("rowkind_broken_promises_total", **of): self.count,
            sample("rowkind_broken_promise_offset", **of, partition=self.partition): self.offset,
        }


def broken(output: Output, sources: Sequence[SourceTable | None]) -> Iterator[Broken]:
    """Yield the violations in a batch. `sources` contains, for each side, the table whose changes arrive as sent."""
    if not len(output.repeated) and not len(output.unmatched):
        return  # This is the usual case. The filters below would take time in every shard of every batch.
    for side, source in enumerate(sources):
        if source is None:
            continue
        repeated = output.repeated.filter(output.repeated.side == side)
        updates = repeated.kind == RowKind.UPDATE_AFTER
        yield from _first(source.table, "primary_key", repeated.filter(~updates))
        lost = output.unmatched.filter((output.unmatched.side == side) & source.exact)
        yield from _first(source.table, "exact", Changes.concat([repeated.filter(updates), lost]))


def _first(table: str, promise: Promise, changes: Changes) -> Iterator[Broken]:
    if len(changes):
        place = ArrivalNumber.of(int(changes.seq.min()))
        yield Broken(table, promise, len(changes), place.partition, place.offset)


def told(counters: Mapping[str, float]) -> Iterator[Broken]:
    """Yield the violations recorded in the counters of a task."""
    for text, offset in counters.items():
        if text.startswith(_WHERE):
            labels = parse(text)[1]
            table, partition = labels["table"], int(labels["partition"])
            promise = next(each for each in _MEANING if each == labels["promise"])
            count = counters[sample("rowkind_broken_promises_total", table=table, promise=promise)]
            yield Broken(table, promise, int(count), partition, int(offset))
