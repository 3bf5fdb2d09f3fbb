"""What a table promises and its topic does not keep, as far as somebody sees it who has the row at hand anyway.

    primary_key    a +I of a row that is there
    exact          a +U of a row that was not taken back before; a -U or -D of a row that is not there, or not so
    not_null       a NULL in a column that has none: such a record is no row, and so becomes a dead letter

The plan is built on these promises. So after one of the first two has been broken, results may be wrong.
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
    "primary_key": "brings a row whose primary key is there already, and replaces it; results may be wrong from now on",
    "exact": (
        "takes back a row that is not there, or replaces one that was not taken back, though the table is said to be "
        "`exact`; results may be wrong from now on"
    ),
    "not_null": "has a NULL in a column that is NOT NULL, and so is no row",
}


class BrokenPromiseError(RowkindError):
    """The topic of a table does not keep what the job promises of it, and the job says `promises: fail`."""


@dataclass(frozen=True)
class Broken:
    """How often a promise was broken, and the first record that did."""

    table: str
    promise: Promise
    count: int
    partition: int
    offset: int

    def __str__(self) -> str:
        remedy = "mend its producer, or do not promise it"
        if self.promise != "not_null":
            remedy += "; then rebuild with `rowkind run --reset-state`"
        return (
            f"table {self.table}: the promise {self.promise} is broken: the record at offset {self.offset} of "
            f"partition {self.partition} {_MEANING[self.promise]}. Look for more in "
            f"rowkind_broken_promises_total, and {remedy}"
        )

    @property
    def error(self) -> BrokenPromiseError:
        """To be raised where the job says so."""
        return BrokenPromiseError(f"{self}. The job says `promises: fail`; with `promises: warn` it goes on.")

    @property
    def counters(self) -> dict[str, float]:
        """How often, and where."""
        of = {"table": self.table, "promise": self.promise}
        return {
            sample("rowkind_broken_promises_total", **of): self.count,
            sample("rowkind_broken_promise_offset", **of, partition=self.partition): self.offset,
        }


def broken(output: Output, sources: Sequence[SourceTable | None]) -> Iterator[Broken]:
    """What the changes of a batch broke; `sources` are the tables whose changes come by an operator's sides as sent."""
    if not len(output.repeated) and not len(output.unmatched):
        return  # As nearly always: each filter would take its time, in every shard of every batch.
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
    """What is in the counters of a task."""
    for text, offset in counters.items():
        if text.startswith(_WHERE):
            labels = parse(text)[1]
            table, partition = labels["table"], int(labels["partition"])
            promise = next(each for each in _MEANING if each == labels["promise"])
            count = counters[sample("rowkind_broken_promises_total", table=table, promise=promise)]
            yield Broken(table, promise, int(count), partition, int(offset))
