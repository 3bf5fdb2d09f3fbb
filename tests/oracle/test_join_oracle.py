"""The join against DuckDB: what all batches so far emitted must be what SQL says about the inputs so far.

Each case is a random changelog over a join kind, two layouts, a condition, NULLs and duplicates, with strong and weak
hashes and with segments of a few rows. DuckDB joins the folded inputs of all batches at once, by batch number. These
tests see wrong results in any batch, rows taken back that are not there, output that is not net, and retractions
wrongly (not) counted as unmatched. A failing case is shrunk and printed.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Mask
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from tests import changelogs
from tests.changelogs import Row, fold, net, pack, show, unpack
from tests.oracle.findings import finding, operating, views_differ
from tests.oracle.inputs import Batches, Input, Materialised, random_batches, shrink
from tests.seeds import seeds

CASES_EACH = seeds()
LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
NULLS: Row = (None, None, None)


@dataclass(frozen=True)
class Case:
    """What is joined, and under which hash."""

    kind: JoinKind
    inputs: tuple[Input, Input]
    condition: Condition | None
    hashed: changelogs.Hash


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as a function of one pair of rows."""

    sql: str
    holds: Callable[[Row, Row], bool]

    def __call__(self, left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
        """Whether each pair of rows matches."""
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([self.holds(unpack(one), unpack(other)) for one, other in pairs], np.bool_)


CONDITIONS: tuple[Condition | None, ...] = (
    None,
    Condition("l.v < r.v", lambda left, right: None not in (left[-1], right[-1]) and left[-1] < right[-1]),  # type: ignore[operator]
    Condition("l.v IS NULL OR r.v = 1", lambda left, right: left[-1] is None or right[-1] == 1),
)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """One connection, one thread: the tables are tiny."""
    return duckdb.connect(config={"threads": 1})


@pytest.mark.parametrize("right_layout", LAYOUTS)
@pytest.mark.parametrize("left_layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_what_sql_says_after_every_batch(
    kind: JoinKind,
    left_layout: Layout,
    right_layout: Layout,
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives SQL's result over the folded inputs."""
    for number, condition in itertools.product(CASES_EACH, CONDITIONS):
        seed = f"{kind}, {left_layout}, {right_layout}, {CONDITIONS.index(condition)}, {number}"
        generator = random.Random(seed)
        case = Case(
            kind,
            (_random_input(generator, left_layout), _random_input(generator, right_layout)),
            condition,
            generator.choice(changelogs.HASHES),
        )
        rows = generator.choice([3, segment.SEGMENT_ROWS])
        with monkeypatch.context() as patch:
            patch.setattr(segment, "SEGMENT_ROWS", rows)
            patch.setattr(compaction, "SMALL_RUN", 2)
            batches = random_batches(case.inputs, seed, batches=8)
            if _difference(database, case, batches) is not None:
                least = shrink(batches, functools.partial(_fails, database, case))
                pytest.fail(f"seed '{seed}', {case}\n{show(least)}\n{_difference(database, case, least)}")


def _random_input(generator: random.Random, layout: Layout) -> Input:
    return Input(layout, by_seq=generator.random() < 0.5, key_in_payload=generator.random() < 0.6)


def _fails(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> bool:
    return _difference(database, case, batches) is not None


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """What is wrong with the join on these batches; None if nothing is."""
    left, right = (Side(of.layout, by_seq=of.by_seq) for of in case.inputs)
    left_pad, right_pad = (pack(of.table.project(NULLS)) for of in case.inputs)
    join = Join(JoinSpec(case.kind, left, right, case.condition, left_pad, right_pad))
    stores = {name: MemoryStore() for name in join.arrangements}
    folded = [Materialised(of) for of in case.inputs]
    tables: list[list[tuple[int | None, ...]]] = [[], []]
    view: Counter[Row] = Counter()
    views = []
    for number, batch in enumerate(batches):
        with operating(number):
            columns = changelogs.packed(batch, [of.table for of in case.inputs], case.hashed)
            output = join.process(columns, stores, now=number)
            fold(view, output.rows)
        if not net(output.rows):
            return f"batch {number} emits and takes back the same row"
        unmatched = [
            change for side, state in enumerate(folded) for change in state.apply([c for c in batch if c.side == side])
        ]
        if Counter(output.unmatched.seq.tolist()) != Counter(change.seq for change in unmatched):
            return f"batch {number}: unmatched {output.unmatched.seq.tolist()}, expected {list(map(str, unmatched))}"
        views.append(view.copy())
        for side, state in enumerate(folded):
            tables[side] += [(number, *row) for row in state.rows]
    return views_differ(views, _sql(database, case, tables))


def _sql(
    database: duckdb.DuckDBPyConnection, case: Case, tables: list[list[tuple[int | None, ...]]]
) -> dict[int, Counter[Row]]:
    """The view after each batch, as DuckDB computes it."""
    columns = ("batch", "id", "k", "v")
    for name, rows in zip(("l", "r"), tables, strict=True):
        arrays = [pa.array([row[at] for row in rows], pa.int64()) for at in range(4)]
        database.register(name, pa.table(dict(zip(columns, arrays, strict=True))))
    keys = [columns[1:][of.table.key[0]] for of in case.inputs]
    selected = [
        f"{name}.{columns[1:][at]}" for name, of in zip("lr", case.inputs, strict=True) for at in of.table.payload
    ]
    extra = "" if case.condition is None else f"AND ({case.condition.sql})"
    found = database.sql(
        f"SELECT coalesce(l.batch, r.batch), {', '.join(selected)} FROM l {case.kind} JOIN r "
        f"ON l.batch = r.batch AND l.{keys[0]} = r.{keys[1]} {extra}"
    ).fetchall()
    views: dict[int, Counter[Row]] = {}
    for number, *row in found:
        views.setdefault(number, Counter())[tuple(row)] += 1
    return views
