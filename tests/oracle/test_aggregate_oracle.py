"""The aggregate against DuckDB: the output of all batches so far must fold to the SQL result over the input so far.

Each case is a random changelog over random calls, with strong and weak hashes and segments of a few rows. The aggregate
runs in one phase, or in two phases where some changes skip the first, per key or globally. Every retraction of the
input matches a row, as upstream operators guarantee. These tests detect sums that do not return to their old value,
extremes that are lost or kept too long, values counted twice, groups that are wrongly kept or dropped, and output that
is not net.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import add_up
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from tests import changelogs
from tests.changelogs import Change
from tests.oracle.aggregates import AGGREGATES, TEXTS, Aggregated, row_of, spec_of
from tests.oracle.inputs import Batches, Input, Materialised, random_batches
from tests.oracle.trials import Table, Views, Work, finding, registered, trials, views_differ
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

INPUT = Input("multiset", by_seq=False)


@dataclass(frozen=True)
class Case:
    """The calls, how they are computed, and the hash."""

    aggregates: tuple[Aggregated, ...]
    retracts: bool
    two_phase: bool
    is_global: bool
    hashed: changelogs.Hash


@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
@pytest.mark.parametrize("is_global", [False, True], ids=["by key", "global"])
@pytest.mark.parametrize("retracts", [False, True], ids=["append", "retract"])
def test_the_result_is_what_sql_says_after_every_batch(
    retracts: bool,
    is_global: bool,
    two_phase: bool,
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives SQL's result over the folded input."""
    for trial in trials(f"aggregate, {retracts}, {is_global}, {two_phase}", seeds(12), monkeypatch):
        generator = trial.generator
        hashed = generator.choice(changelogs.HASHES)
        chosen = tuple(generator.sample(AGGREGATES, generator.randint(0, 6)))
        # The global aggregate uses the strong hash: no other key may share the hash of the empty key.
        case = Case(chosen, retracts, two_phase, is_global, changelogs.strong_hash if is_global else hashed)
        batches = exact(random_batches([INPUT], trial.seed, batches=8), retracts=retracts)
        trial.check(functools.partial(_difference, database, case), batches, case)


def exact(batches: Batches, *, retracts: bool) -> Batches:
    """Drop unmatched retractions, or all retractions."""
    state, result = Materialised(INPUT), []
    for batch in batches:
        unmatched = state.apply(batch)
        result.append([change for change in batch if change.sign > 0 or (retracts and change not in unmatched)])
    return result


def columns(batch: list[Change], case: Case) -> Batch:
    """Return the batch as the operator takes it: NULL keys are equal, and the global aggregate has one key."""
    given = changelogs.split(batch, lambda part: _keyed(part, case))
    if not case.two_phase:
        return given
    spec = spec_of(case.aggregates, retracts=case.retracts, is_global=case.is_global)
    raw, *tasks = (given.changes.take(task) for task in np.array_split(np.arange(len(given.changes)), 3))
    return replace(given, changes=Changes.concat([raw, *(add_up(spec, task) for task in tasks)]))


def _keyed(batch: Sequence[Change], case: Case) -> Changes:
    given = changelogs.changes(batch, [INPUT.table], case.hashed)
    keys = [b"" if case.is_global else changelogs.pack((change.row[1],)) for change in batch]
    key = changelogs.binary(keys)
    return replace(given, key=key, hash=case.hashed(keys))


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """Return how the aggregate's output is wrong on these batches; None if it is right or a retraction is unmatched."""
    work = Work(Aggregate(spec_of(case.aggregates, retracts=case.retracts, is_global=case.is_global)))
    folded, table, views = Materialised(INPUT), Table(), []
    for number, batch in enumerate(batches):
        if folded.apply(batch):
            return None
        if wrong := work.differs(work.process(columns(batch, case), number), 0):
            return wrong
        views.append(work.view.copy())
        if not folded.rows and not case.is_global and work.blobs:
            return f"after batch {number}: state is left and there are no rows"
        table += [(number, *row) for row in folded.rows]
    return views_differ(views, _sql(database, case, table, len(batches)))


def _sql(database: duckdb.DuckDBPyConnection, case: Case, rows: Table, batches: int) -> Views:
    """Return the view after each batch, computed by DuckDB."""
    texts = pa.array([None if row[3] is None else TEXTS[row[3]] for row in rows], pa.string())
    registered(database, "input", rows, "id", "k", "v", t=texts)
    selected = ", ".join(["batch", "NULL" if case.is_global else "k", *(one.sql for one in case.aggregates)])
    found = database.sql(f"SELECT {selected} FROM input GROUP BY batch" + ("" if case.is_global else ", k")).fetchall()
    views: Views = {}
    if case.is_global:
        empty = database.sql(
            f"SELECT {selected.replace('batch', '0', 1)} FROM input WHERE false GROUP BY ()"
        ).fetchall()
        views = {number: Counter([row_of(None, empty[0][2:], is_global=True)]) for number in range(batches)}
        for number, _, *results in found:
            views[number] = Counter([row_of(None, results, is_global=True)])
        return views
    for number, key, *results in found:
        views.setdefault(number, Counter())[row_of(key, results)] += 1
    return views
