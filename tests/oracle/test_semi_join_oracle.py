"""Semi, anti and mark joins against DuckDB, and under a clock against the naive join's null-padded rows.

Each case is a random changelog over a kind, two layouts, a condition, NULLs and duplicates, with strong and weak hashes
and segments of a few rows. DuckDB evaluates EXISTS, NOT EXISTS, IN and NOT IN over the folded inputs after each batch.
SQL has no expiry. Under a clock, the anti join must equal the null-padded rows of the naive left join, the semi join
the other left rows, and the mark join both.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
import pytest

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.columns.batch import Batch
from rowkind.operators.join.input import Side
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from tests import changelogs
from tests.changelogs import Change, Row
from tests.oracle.facts import with_facts
from tests.oracle.inputs import Batches, Input, random_batches, with_refreshes
from tests.oracle.joins import LAYOUTS, LESS, TTLS, joined_in_sql, key, selected
from tests.oracle.naive_join import NaiveJoin, NaiveSide, Steps, Stored
from tests.oracle.trials import Table, Views, Work, changes_differ, finding, sql_differs, timed, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

KINDS: tuple[SemiJoinKind, ...] = ("semi", "anti", "null-aware anti", "mark", "null-aware mark")
NULL_AWARE = ("null-aware anti", "null-aware mark")
ANSWERS = (changelogs.pack((0,)), changelogs.pack((1,)), changelogs.pack((None,)))


@dataclass(frozen=True)
class Case:
    """The join, its inputs, the hash, and the TTL of each side."""

    kind: SemiJoinKind
    inputs: tuple[Input, Input]
    conditional: bool
    hashed: changelogs.Hash = changelogs.strong_hash
    ttls: tuple[int | None, int | None] = (None, None)
    refreshes: bool = False

    @property
    def operator(self) -> SemiJoin:
        """Return the operator."""
        sides = [Side(of.layout, ttl, of.by_seq) for of, ttl in zip(self.inputs, self.ttls, strict=True)]
        condition = LESS if self.conditional else None
        return SemiJoin(SemiJoinSpec(self.kind, sides[0], sides[1], condition, self.refreshes, ANSWERS))

    def columns(self, batch: list[Change]) -> Batch:
        """Return the batch as the operator takes it."""
        packed = changelogs.packed(batch, [of.table for of in self.inputs], self.hashed)
        return with_facts(packed) if self.kind in NULL_AWARE else packed


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids=", ".join)
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_what_sql_says_after_every_batch(
    kind: SemiJoinKind,
    layouts: tuple[Layout, Layout],
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives SQL's result over the folded inputs."""
    for conditional in (False, True):
        for trial in trials(f"{kind}, {layouts}, {conditional}", seeds(2), monkeypatch):
            generator = trial.generator
            left, right = (Input(layout, generator.random() < 0.5, generator.random() < 0.6) for layout in layouts)
            if kind in NULL_AWARE:
                # The facts are a copy of the right side's changes; only with this input is every change counted in
                # order.
                right = Input("multiset", by_seq=False)
            with_condition = conditional and kind not in NULL_AWARE
            case = Case(kind, (left, right), with_condition, generator.choice(changelogs.HASHES))
            batches = random_batches(case.inputs, trial.seed, batches=8)
            trial.check(functools.partial(_difference, database, case), batches, case)


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_batch_emits_under_a_clock_is_what_the_definition_says(
    kind: SemiJoinKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a TTL on either side, the output follows from the naive left join's null-padded rows, or from NOT IN."""
    for trial in trials(f"clock, {kind}", seeds(4), monkeypatch):
        generator = trial.generator
        left, right = (Input(generator.choice(LAYOUTS), generator.random() < 0.5) for _ in range(2))
        ttls = (generator.choice(TTLS), generator.choice(TTLS))
        case = Case(kind, (left, right), generator.random() < 0.5, ttls=ttls)
        difference = _difference_to_pads
        if kind in NULL_AWARE:
            case = Case(kind, (left, Input("multiset", by_seq=False)), conditional=False, ttls=(ttls[0], None))
            difference = _difference_to_in
        batches = random_batches(case.inputs, trial.seed, batches=14, changes=6)
        if generator.random() < 0.7:
            case, batches = replace(case, refreshes=True), with_refreshes(batches, trial.seed)
        trial.check(functools.partial(difference, case), batches, case)


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    sql = functools.partial(_sql, database, case)
    return sql_differs(case.operator, case.inputs, batches, case.columns, sql)


def _sql(database: duckdb.DuckDBPyConnection, case: Case, tables: Sequence[Table]) -> Views:
    left, right = (key(name, of) for name, of in zip("lr", case.inputs, strict=True))
    columns = selected("l", case.inputs[0])
    extra = f" AND {LESS.sql}" if case.conditional else ""
    exists = f"EXISTS (SELECT 1 FROM r WHERE r.batch = l.batch AND {left} = {right}{extra})"
    one_of = f"{left} IN (SELECT {right} FROM r WHERE r.batch = l.batch)"
    query = {
        "semi": f"{columns} FROM l WHERE {exists}",
        "anti": f"{columns} FROM l WHERE NOT {exists}",
        "null-aware anti": f"{columns} FROM l WHERE NOT {one_of}",
        "mark": f"{columns}, {exists} FROM l",
        "null-aware mark": f"{columns}, {one_of} FROM l",
    }
    return joined_in_sql(database, f"SELECT l.batch, {query[case.kind]}", tables)


def _difference_to_pads(case: Case, batches: Batches) -> str | None:
    """Return how the output differs from the naive left join's, with batch times by number; None if it does not."""
    left, right = (NaiveSide(of, ttl) for of, ttl in zip(case.inputs, case.ttls, strict=True))
    naive = NaiveJoin("left", left, right, LESS.holds if case.conditional else (lambda _left, _right: True))
    project = case.inputs[0].table.project

    def row(one: Stored, *, unmatched: bool) -> Row | None:
        if case.kind == "mark":
            return (*project(one.row), int(not unmatched))
        return project(one.row) if unmatched == (case.kind == "anti") else None

    def process(batch: list[Change], now: int) -> list[Row | None]:
        naive.process(batch, now)
        return [row(one, unmatched=unmatched) for one, unmatched in naive.late_left]

    def written(one: Stored, now: int) -> bool:
        matches = (other for other in right.stored if case.kind != "anti" and naive.match(one, other))
        return any(each.written_at == now for each in (one, *matches))

    return _difference_to_left_rows(
        case, batches, left, process, out=lambda one: row(one, unmatched=one.padded), written=written
    )


def _difference_to_in(case: Case, batches: Batches) -> str | None:
    """Return how the output differs from IN or NOT IN over all rows of the right side, which never expire."""
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
    """Return how the emitted changes differ from the changes of `out` over all left rows; None if they do not.

    `process` also returns the output rows of late retractions. `written` returns whether a row's output is refreshed.
    """
    work = Work(case.operator, folds=False)
    for now, batch in timed(batches):
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
        output = work.process(case.columns(batch), now)
        if wrong := changes_differ(work.number, output.emitted, steps, refreshes=case.refreshes):
            return wrong
    return None
