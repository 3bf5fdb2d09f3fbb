"""Random trials of an operator: seeds, small segments, the running operator, and the smallest changelog that fails.

A difference is a text that says how the operator is wrong, or None if it is right. An operator that raises an error
counts as wrong as well, and its changelog is shrunk in the same way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

import duckdb
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.operator import Operator, Output
from tests.changelogs import Change, Row, changed, fold, net, refreshed, show
from tests.oracle.inputs import Batches, Input, Materialised, shrink, times
from tests.oracle.naive_join import Steps

_Given = ParamSpec("_Given")


@dataclass(frozen=True)
class Trial:
    """One random case, identified by its seed."""

    seed: str
    generator: random.Random

    def check(self, difference: Callable[[Batches], str | None], batches: Batches, *case: object) -> None:
        """Fail with the smallest failing changelog if the operator is wrong on this one; the message has the case."""
        if difference(batches) is not None:
            least = shrink(batches, lambda smaller: difference(smaller) is not None)
            given = "".join(f", {each}" for each in case)
            pytest.fail(f"seed '{self.seed}'{given}\n{show(least)}\n{difference(least)}")


def trials(name: str, numbers: Iterable[int], patch: pytest.MonkeyPatch, least_rows: int = 3) -> Iterator[Trial]:
    """Yield a trial per number; some use segments of `least_rows` rows, and all merge runs of two rows or more."""
    whole = segment.SEGMENT_ROWS
    for number in numbers:
        seed = f"{name}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        patch.setattr(segment, "SEGMENT_ROWS", generator.choice([least_rows, whole]))
        patch.setattr(compaction, "SMALL_RUN", 2)
        yield Trial(seed, generator)


class _FailedError(Exception):
    """An operator failed on a batch."""


def finding(difference: Callable[_Given, str | None]) -> Callable[_Given, str | None]:
    """Return the same comparison, which reports an error of a running operator as a difference."""

    @wraps(difference)
    def found(*given: _Given.args, **named: _Given.kwargs) -> str | None:
        try:
            return difference(*given, **named)
        except _FailedError as failed:
            return str(failed)

    return found


@contextmanager
def operating(number: int) -> Iterator[None]:
    """Report an error of an operator as a failure on batch `number`."""
    try:
        yield
    except Exception as error:  # every error is a finding
        raise _FailedError(f"batch {number}: {error!r}") from error


@dataclass
class Work:
    """A running operator that takes one batch after the other, and the view to which its output folds.

    Under a TTL an operator may retract a row that it has never emitted; with `folds=False` the output is not folded.
    """

    operator: Operator
    folds: bool = True
    stores: dict[str, MemoryStore] = field(init=False)
    view: Counter[Row] = field(default_factory=Counter)
    number: int = -1

    def __post_init__(self) -> None:
        self.stores = {name: MemoryStore() for name in self.operator.arrangements}

    def process(self, batch: Batch, now: int = 0) -> Output:
        """Return the output for the next batch."""
        self.number += 1
        with operating(self.number):
            output = self.operator.process(batch, self.stores, now)
            if self.folds:
                fold(self.view, output.rows)
        return output

    def differs(
        self, output: Output, unmatched: int | Sequence[Change], view: Counter[Row] | None = None
    ) -> str | None:
        """Return how the output is wrong: it is not net, or its unmatched retractions or its folded view differ."""
        if not net(output.rows):
            return f"batch {self.number} emits and takes back the same row: {dict(changed(output.rows))}"
        seqs = output.unmatched.seq.tolist()
        if (
            len(seqs) != unmatched
            if isinstance(unmatched, int)
            else sorted(seqs) != sorted(each.seq for each in unmatched)
        ):
            return f"batch {self.number}: unmatched {seqs}, expected {unmatched}"
        return None if view is None else self.differs_from(view)

    def differs_from(self, view: Counter[Row]) -> str | None:
        """Return how the view so far differs from this view; None if it does not."""
        if self.view == view:
            return None
        return f"after batch {self.number}: {dict(self.view - view)} too much, {dict(view - self.view)} missing"

    def restart(self) -> None:
        """Continue with copies of the stores."""
        self.stores = {name: store.copy() for name, store in self.stores.items()}

    @property
    def blobs(self) -> dict[str, list[str]]:
        """Return the names of the blobs that are left, by store."""
        return {name: list(store) for name, store in self.stores.items() if list(store)}


def changes_differ(number: int, emitted: Emitted, steps: Steps, *, refreshes: bool = True) -> str | None:
    """Return how the changes (a signed multiset) or refreshes of a batch differ from these steps."""
    pairs = (
        ("emits", changed(emitted.rows), steps.net),
        ("refreshes", refreshed(emitted), steps.refreshed if refreshes else Counter()),
    )
    for does, found, expected in pairs:
        if found != expected:
            return f"batch {number} {does} {dict(found)}, expected {dict(expected)}"
    return None


def timed(batches: Batches) -> Iterator[tuple[int, list[Change]]]:
    """Return the batches with their times, which depend only on their numbers."""
    return zip(times(len(batches)), batches, strict=True)


Table = list[tuple[int | None, ...]]
"""Rows, each prefixed by the number of the batch after which it is present."""
Views = dict[int, Counter[Row]]
"""The view after each batch that leaves rows, by the batch's number."""


def sql_differs(
    operator: Operator,
    inputs: Sequence[Input],
    batches: Batches,
    columns: Callable[[list[Change]], Batch],
    sql: Callable[[list[Table]], Views],
) -> str | None:
    """Return how an operator differs, after any batch, from the result of one SQL query over the folded inputs."""
    work, states, tables = Work(operator), [Materialised(of) for of in inputs], [Table() for _ in inputs]
    views = []
    for number, batch in enumerate(batches):
        output = work.process(columns(batch), number)
        unmatched = []
        for side, (state, table) in enumerate(zip(states, tables, strict=True)):
            unmatched += state.apply([change for change in batch if change.side == side])
            table += [(number, *row) for row in state.rows]
        if wrong := work.differs(output, unmatched):
            return wrong
        views.append(work.view.copy())
    return views_differ(views, sql(tables))


def views_differ(views: Sequence[Counter[Row]], expected: Views) -> str | None:
    """Return the first difference between views; a batch without an expected view leaves no rows."""
    for number, view in enumerate(views):
        if view != expected.get(number, Counter()):
            return f"after batch {number}: {dict(view)}, expected {dict(expected.get(number, Counter()))}"
    return None


def registered(database: duckdb.DuckDBPyConnection, name: str, rows: Table, *columns: str, **more: pa.Array) -> None:
    """Register rows as a table of integers whose first column is the batch."""
    arrays = {column: pa.array([row[at] for row in rows], pa.int64()) for at, column in enumerate(("batch", *columns))}
    database.register(name, pa.table(arrays | more))


def views_of(rows: Iterable[Sequence[Any]]) -> Views:
    """Return views from rows whose first column is the batch."""
    views: Views = {}
    for number, *row in rows:
        views.setdefault(number, Counter())[tuple(row)] += 1
    return views
