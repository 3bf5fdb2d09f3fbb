"""The aggregate against DuckDB: what all batches so far emitted must be what SQL says about the input so far.

Each case is a random changelog over random calls, with strong and weak hashes, with segments of a few rows, in one
phase, or in two with some changes that skip the first, by a key or over everything. The input is exact, as operators
upstream emitted it. These tests see sums that do not come back, extremes that are lost or kept, values counted twice,
groups that stay or go wrongly, output that is not net. A failing case is shrunk and printed.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import add_up
from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from tests import changelogs
from tests.changelogs import Change, Row, fold, net, show
from tests.oracle.aggregates import AGGREGATES, TEXTS, Aggregated, row_of, spec_of
from tests.oracle.findings import finding, operating, views_differ
from tests.oracle.inputs import Batches, Input, Materialised, random_batches, shrink
from tests.seeds import seeds

CASES_EACH = seeds(12)
INPUT = Input("multiset", by_seq=False)


@dataclass(frozen=True)
class Case:
    """What is aggregated, how, and under which hash."""

    aggregates: tuple[Aggregated, ...]
    retracts: bool
    two_phase: bool
    is_global: bool
    hashed: changelogs.Hash


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """One connection, one thread: the tables are tiny."""
    return duckdb.connect(config={"threads": 1})


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
    for number in CASES_EACH:
        seed = f"aggregate, {retracts}, {is_global}, {two_phase}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        hashed = generator.choice(changelogs.HASHES)
        chosen = tuple(generator.sample(AGGREGATES, generator.randint(0, 6)))
        # A hash that other keys share is no hash of the empty key.
        case = Case(chosen, retracts, two_phase, is_global, changelogs.strong_hash if is_global else hashed)
        rows = generator.choice([3, segment.SEGMENT_ROWS])
        with monkeypatch.context() as patch:
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = exact(random_batches([INPUT], seed, batches=8), retracts=retracts)
            if _difference(database, case, batches) is not None:
                least = shrink(batches, functools.partial(_fails, database, case))
                pytest.fail(f"seed '{seed}', {case}\n{show(least)}\n{_difference(database, case, least)}")


def exact(batches: Batches, *, retracts: bool) -> Batches:
    """The same without retractions that find nothing, or without any."""
    state, result = Materialised(INPUT), []
    for batch in batches:
        unmatched = state.apply(batch)
        result.append([change for change in batch if change.sign > 0 or (retracts and change not in unmatched)])
    return result


def columns(batch: list[Change], case: Case) -> Batch:
    """The batch as the operator takes it: NULLs are equal, and of the global aggregate all keys are."""
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


def _fails(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> bool:
    return _valid(batches) and _difference(database, case, batches) is not None


def _valid(batches: Batches) -> bool:
    state = Materialised(INPUT)
    return not any(state.apply(batch) for batch in batches)


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """What is wrong with the aggregate on these batches; None if nothing is."""
    spec = spec_of(case.aggregates, retracts=case.retracts, is_global=case.is_global)
    aggregate = Aggregate(spec)
    stores = {name: MemoryStore() for name in aggregate.arrangements}
    folded = Materialised(INPUT)
    table: list[tuple[int | None, ...]] = []
    view: Counter[Row] = Counter()
    views = []
    for number, batch in enumerate(batches):
        with operating(number):
            output = aggregate.process(columns(batch, case), stores, now=number)
            fold(view, output.rows)
        if not net(output.rows):
            return f"batch {number} emits and takes back the same row"
        if len(output.unmatched):
            return f"batch {number}: unmatched {output.unmatched.seq.tolist()}"
        views.append(view.copy())
        folded.apply(batch)
        if not folded.rows and not case.is_global and any(list(store) for store in stores.values()):
            return f"after batch {number}: state is left and there are no rows"
        table += [(number, *row) for row in folded.rows]
    return views_differ(views, _sql(database, case, table, len(batches)))


def _sql(
    database: duckdb.DuckDBPyConnection, case: Case, rows: list[tuple[int | None, ...]], batches: int
) -> dict[int, Counter[Row]]:
    """The view after each batch, as DuckDB computes it."""
    arrays = {
        name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(("batch", "id", "k", "v"))
    }
    texts = pa.array([None if row[3] is None else TEXTS[row[3]] for row in rows], pa.string())
    database.register("input", pa.table({**arrays, "t": texts}))
    selected = ", ".join(["batch", "NULL" if case.is_global else "k", *(one.sql for one in case.aggregates)])
    found = database.sql(f"SELECT {selected} FROM input GROUP BY batch" + ("" if case.is_global else ", k")).fetchall()
    views: dict[int, Counter[Row]] = {}
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
