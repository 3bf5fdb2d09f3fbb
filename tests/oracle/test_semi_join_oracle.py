"""Semi and anti join against DuckDB, and under a clock against the naive join's pads.

Each case is a random changelog over a kind, two layouts, a condition, NULLs and duplicates, with strong and weak
hashes and segments of a few rows. DuckDB evaluates EXISTS, NOT EXISTS and NOT IN over the folded inputs after each
batch. Under a clock, where SQL has nothing to say, the anti join is what a left join does to its pads and the semi
join is the rest of the left rows. A failing case is shrunk and printed.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.arrangement import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Changes
from rowkind.operators.join import Side
from rowkind.operators.join_rows import Condition
from rowkind.operators.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from tests import changelogs
from tests.changelogs import Change, Row, fold, net, show, unpack
from tests.oracle.facts import with_facts
from tests.oracle.findings import changes_differ, finding, operating, views_differ
from tests.oracle.inputs import Batches, Input, Materialised, random_batches, shrink, times, with_refreshes
from tests.oracle.naive_join import NaiveJoin, NaiveSide, Steps, Stored
from tests.seeds import seeds

CASES_EACH = seeds(2)
CLOCK_CASES_EACH = seeds(4)
LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
KINDS: tuple[SemiJoinKind, ...] = ("semi", "anti", "null-aware anti")
TTLS = (None, 2, 5)


@dataclass(frozen=True)
class Case:
    """What is joined, under which hash, and how long the rows of each side live."""

    kind: SemiJoinKind
    inputs: tuple[Input, Input]
    conditional: bool
    hashed: changelogs.Hash = changelogs.strong_hash
    ttls: tuple[int | None, int | None] = (None, None)
    refreshes: bool = False

    @property
    def operator(self) -> SemiJoin:
        """The operator."""
        sides = [Side(of.layout, ttl, of.by_seq) for of, ttl in zip(self.inputs, self.ttls, strict=True)]
        condition: Condition | None = _less_mask if self.conditional else None
        return SemiJoin(SemiJoinSpec(self.kind, sides[0], sides[1], condition, self.refreshes))

    def columns(self, batch: list[Change]) -> Changes:
        """The batch as the operator takes it."""
        changes = changelogs.changes(batch, [of.table for of in self.inputs], self.hashed)
        return with_facts(changes) if self.kind == "null-aware anti" else changes


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """One connection, one thread: the tables are tiny."""
    return duckdb.connect(config={"threads": 1})


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids=", ".join)
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_what_sql_says_after_every_batch(
    kind: SemiJoinKind,
    layouts: tuple[Layout, Layout],
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives SQL's result over the folded inputs."""
    for number, conditional in itertools.product(CASES_EACH, (False, True)):
        seed = f"{kind}, {layouts}, {conditional}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        left, right = (Input(layout, generator.random() < 0.5, generator.random() < 0.6) for layout in layouts)
        if kind == "null-aware anti":
            # The facts about R are its own changes once more, which only such an input lets be counted as they come.
            right = Input("multiset", by_seq=False)
        hashes = changelogs.HASHES
        with_condition = conditional and kind != "null-aware anti"
        case = Case(kind, (left, right), with_condition, generator.choice(hashes))
        with _small_segments(monkeypatch, generator):
            batches = random_batches(case.inputs, seed, batches=8)
            _check(seed, case, batches, functools.partial(_difference, database))


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_batch_emits_under_a_clock_is_what_the_definition_says(
    kind: SemiJoinKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TTL on either side, every batch emits what follows from the naive left join's pads, or from NOT IN."""
    for number in CLOCK_CASES_EACH:
        seed = f"clock, {kind}, {number}"
        print(f"seed '{seed}'")
        generator = random.Random(seed)
        inputs = tuple(Input(generator.choice(LAYOUTS), generator.random() < 0.5) for _ in range(2))
        ttls = (generator.choice(TTLS), generator.choice(TTLS))
        case = Case(kind, (inputs[0], inputs[1]), generator.random() < 0.5, ttls=ttls)
        difference = _difference_to_pads
        if kind == "null-aware anti":
            case = Case(kind, (inputs[0], Input("multiset", by_seq=False)), conditional=False, ttls=(ttls[0], None))
            difference = _difference_to_not_in
        with _small_segments(monkeypatch, generator):
            batches = random_batches(case.inputs, seed, batches=14, changes=6)
            if generator.random() < 0.7:
                case, batches = replace(case, refreshes=True), with_refreshes(batches, seed)
            _check(seed, case, batches, difference)


def _check(seed: str, case: Case, batches: Batches, difference: functools.partial[str | None]) -> None:
    if difference(case, batches) is not None:
        least = shrink(batches, lambda smaller: difference(case, smaller) is not None)
        pytest.fail(f"seed '{seed}', {case}\n{show(least)}\n{difference(case, least)}")


class _small_segments:  # noqa: N801 - reads as a statement
    """Sometimes segments of three rows, and merges from two rows on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, generator: random.Random) -> None:
        self._context = monkeypatch.context()
        self._rows = generator.choice([3, segment.SEGMENT_ROWS])

    def __enter__(self) -> None:
        patch = self._context.__enter__()
        patch.setattr(segment, "SEGMENT_ROWS", self._rows)
        patch.setattr(compaction, "SEGMENT_ROWS", self._rows)
        patch.setattr(compaction, "SMALL_RUN", 2)

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


def _less(left: Row, right: Row) -> bool:
    return None not in (left[-1], right[-1]) and left[-1] < right[-1]  # type: ignore[operator]


def _less_mask(left: pa.BinaryArray, right: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.array([_less(unpack(one), unpack(other)) for one, other in pairs], np.bool_)


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches; None if nothing is."""
    operator = case.operator
    stores = {name: MemoryStore() for name in operator.arrangements}
    folded = [Materialised(of) for of in case.inputs]
    tables: list[list[tuple[int | None, ...]]] = [[], []]
    view: Counter[Row] = Counter()
    views = []
    for number, batch in enumerate(batches):
        with operating(number):
            output = operator.process(case.columns(batch), stores, now=number)
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
    left, right = (f"{name}.{columns[1:][of.table.key[0]]}" for name, of in zip("lr", case.inputs, strict=True))
    selected = ", ".join(f"l.{columns[1:][at]}" for at in case.inputs[0].table.payload)
    extra = " AND l.v < r.v" if case.conditional else ""
    exists = f"EXISTS (SELECT 1 FROM r WHERE r.batch = l.batch AND {left} = {right}{extra})"
    where = {
        "semi": exists,
        "anti": f"NOT {exists}",
        "null-aware anti": f"{left} NOT IN (SELECT {right} FROM r WHERE r.batch = l.batch)",
    }
    views: dict[int, Counter[Row]] = {}
    for number, *row in database.sql(f"SELECT l.batch, {selected} FROM l WHERE {where[case.kind]}").fetchall():
        views.setdefault(number, Counter())[tuple(row)] += 1
    return views


def _difference_to_pads(case: Case, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches, whose times depend on their number; None if nothing is."""
    left, right = (NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True))
    naive = NaiveJoin("left", left, right, _less if case.conditional else (lambda _left, _right: True))

    def process(batch: list[Change], now: int) -> list[Row]:
        naive.process(batch, now)
        return [one.row for one, lonely in naive.late_left if lonely == (case.kind == "anti")]

    def written(one: Stored, now: int) -> bool:
        matches = (other for other in right.stored if case.kind == "semi" and naive.match(one, other))
        return any(each.written_at == now for each in (one, *matches))

    def passes(one: Stored) -> bool:
        return one.padded == (case.kind == "anti")

    return _difference_to_left_rows(case, batches, left, process, passes=passes, written=written)


def _difference_to_not_in(case: Case, batches: Batches) -> str | None:
    """The same where the definition is NOT IN over all rows of the right side, which live for ever."""
    left, right = (NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True))

    def process(batch: list[Change], now: int) -> list[Row]:
        late = left.apply([change for change in batch if change.side == 0], now)
        out = [one.row for one in late if left.ttl_ms is not None and passes(one)]
        right.apply([change for change in batch if change.side == 1], now)
        return out

    def passes(one: Stored) -> bool:
        keys = [right.key(other.row) for other in right.stored]
        key = left.key(one.row)
        return not keys or (key is not None and None not in keys and key not in keys)

    def written(one: Stored, now: int) -> bool:
        return one.written_at == now

    return _difference_to_left_rows(case, batches, left, process, passes=passes, written=written)


@finding
def _difference_to_left_rows(
    case: Case,
    batches: Batches,
    left: NaiveSide,
    process: Callable[[list[Change], int], list[Row]],
    *,
    passes: Callable[[Stored], bool],
    written: Callable[[Stored, int], bool],
) -> str | None:
    """What is wrong where a batch is to emit how those of the left rows change that pass.

    `process` also gives the rows that are taken back late, and `written` says what keeps one alive.
    """
    operator, project = case.operator, case.inputs[0].table.project
    stores = {name: MemoryStore() for name in operator.arrangements}
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        left.expire(now)
        before, steps = {id(one): one for one in left.stored if passes(one)}, Steps()
        late = process(batch, now)
        after = {id(one): one for one in left.stored if passes(one)}
        for at, one in (before | after).items():
            steps.add(project(one.row), was=at in before, is_=at in after, written=written(one, now))
        for row in late:
            steps.add(project(row), was=True, is_=False, written=False)
        with operating(number):
            output = operator.process(case.columns(batch), stores, now)
        if wrong := changes_differ(number, output.rows, steps.net, steps.refreshed if case.refreshes else None):
            return wrong
    return None
