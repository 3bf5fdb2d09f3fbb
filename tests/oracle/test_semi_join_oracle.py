"""Semi, anti and mark join against DuckDB, and under a clock against the naive join's pads.

Each case is a random changelog over a kind, two layouts, a condition, NULLs and duplicates, with strong and weak
hashes and segments of a few rows. DuckDB evaluates EXISTS, NOT EXISTS, IN and NOT IN over the folded inputs after
each batch. Under a clock, where SQL has nothing to say, the anti join is what a left join does to its pads, the semi
join is the rest of the left rows, and the mark join both. A failing case is shrunk and printed.
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
from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.join.input import Side
from rowkind.operators.join.rows import Condition
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
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
KINDS: tuple[SemiJoinKind, ...] = ("semi", "anti", "null-aware anti", "mark", "null-aware mark")
NULL_AWARE = ("null-aware anti", "null-aware mark")
ANSWERS = (changelogs.pack((0,)), changelogs.pack((1,)), changelogs.pack((None,)))
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
        return SemiJoin(SemiJoinSpec(self.kind, sides[0], sides[1], condition, self.refreshes, ANSWERS))

    def columns(self, batch: list[Change]) -> Batch:
        """The batch as the operator takes it."""
        changes = changelogs.packed(batch, [of.table for of in self.inputs], self.hashed)
        return with_facts(changes) if self.kind in NULL_AWARE else changes


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
        if kind in NULL_AWARE:
            # The facts about R are its own changes once more, which only such an input lets be counted as they come.
            right = Input("multiset", by_seq=False)
        hashes = changelogs.HASHES
        with_condition = conditional and kind not in NULL_AWARE
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
        if kind in NULL_AWARE:
            case = Case(kind, (inputs[0], Input("multiset", by_seq=False)), conditional=False, ttls=(ttls[0], None))
            difference = _difference_to_in
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
    one_of = f"{left} IN (SELECT {right} FROM r WHERE r.batch = l.batch)"
    query = {
        "semi": f"{selected} FROM l WHERE {exists}",
        "anti": f"{selected} FROM l WHERE NOT {exists}",
        "null-aware anti": f"{selected} FROM l WHERE NOT {one_of}",
        "mark": f"{selected}, {exists} FROM l",
        "null-aware mark": f"{selected}, {one_of} FROM l",
    }
    views: dict[int, Counter[Row]] = {}
    for number, *row in database.sql(f"SELECT l.batch, {query[case.kind]}").fetchall():
        views.setdefault(number, Counter())[tuple(row)] += 1
    return views


def _difference_to_pads(case: Case, batches: Batches) -> str | None:
    """What is wrong with the operator on these batches, whose times depend on their number; None if nothing is."""
    left, right = (NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True))
    naive = NaiveJoin("left", left, right, _less if case.conditional else (lambda _left, _right: True))
    project = case.inputs[0].table.project

    def row(one: Stored, *, lonely: bool) -> Row | None:
        if case.kind == "mark":
            return (*project(one.row), int(not lonely))
        return project(one.row) if lonely == (case.kind == "anti") else None

    def process(batch: list[Change], now: int) -> list[Row | None]:
        naive.process(batch, now)
        return [row(one, lonely=lonely) for one, lonely in naive.late_left]

    def written(one: Stored, now: int) -> bool:
        matches = (other for other in right.stored if case.kind != "anti" and naive.match(one, other))
        return any(each.written_at == now for each in (one, *matches))

    return _difference_to_left_rows(
        case, batches, left, process, out=lambda one: row(one, lonely=one.padded), written=written
    )


def _difference_to_in(case: Case, batches: Batches) -> str | None:
    """The same where the definition is IN, or NOT IN, over all rows of the right side, which live for ever."""
    left, right = (NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True))
    project = case.inputs[0].table.project

    def process(batch: list[Change], now: int) -> list[Row | None]:
        late = left.apply([change for change in batch if change.side == 0], now)
        gone = [out(one) for one in late if left.ttl_ms is not None]
        right.apply([change for change in batch if change.side == 1], now)
        return gone

    def out(one: Stored) -> Row | None:
        found = answer(one)
        if case.kind == "null-aware mark":
            return (*project(one.row), found)
        return project(one.row) if found == 0 else None

    def answer(one: Stored) -> int | None:
        keys = [right.key(other.row) for other in right.stored]
        key = left.key(one.row)
        if key is not None and key in keys:
            return 1
        return None if keys and (key is None or None in keys) else 0

    def written(one: Stored, now: int) -> bool:
        matches = (other for other in right.stored if case.kind == "null-aware mark")
        equal = (other for other in matches if None is not left.key(one.row) == right.key(other.row))
        return any(each.written_at == now for each in (one, *equal))

    return _difference_to_left_rows(case, batches, left, process, out=out, written=written)


@finding
def _difference_to_left_rows(
    case: Case,
    batches: Batches,
    left: NaiveSide,
    process: Callable[[list[Change], int], list[Row | None]],
    *,
    out: Callable[[Stored], Row | None],
    written: Callable[[Stored, int], bool],
) -> str | None:
    """What is wrong where a batch is to emit how that changes what is out of each left row, if anything is.

    `process` also gives what is taken back late, and `written` says what keeps a row alive.
    """
    operator = case.operator
    stores = {name: MemoryStore() for name in operator.arrangements}
    for number, (now, batch) in enumerate(zip(times(len(batches)), batches, strict=True)):
        left.expire(now)
        before, steps = {id(one): (out(one), one) for one in left.stored}, Steps()
        late = process(batch, now)
        after = {id(one): (out(one), one) for one in left.stored}
        for at, (row, one) in (before | after).items():
            was, is_ = (rows[at][0] if at in rows else None for rows in (before, after))
            if was == is_ and row is not None:
                steps.add(row, was=True, is_=True, written=written(one, now))
            for each in {was, is_} - {None} if was != is_ else ():
                steps.add(each, was=each == was, is_=each == is_, written=False)
        for row in late:
            if row is not None:
                steps.add(row, was=True, is_=False, written=False)
        with operating(number):
            output = operator.process(case.columns(batch), stores, now)
        if wrong := changes_differ(number, output.emitted, steps.net, steps.refreshed if case.refreshes else None):
            return wrong
    return None
