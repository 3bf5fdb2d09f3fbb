"""The join against DuckDB: the output of all batches so far must fold to the SQL result over the inputs so far.

Each case is a random changelog over a join kind, two layouts, a condition, NULLs and duplicates, with strong and weak
hashes and segments of a few rows. DuckDB joins the folded inputs of all batches at once, by batch number. These tests
detect wrong results in any batch, retractions of rows that are not in the output, output that is not net, and
retractions wrongly counted, or not counted, as unmatched.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pytest

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from tests import changelogs
from tests.changelogs import Row, pack
from tests.oracle.inputs import Batches, Input, random_batches
from tests.oracle.joins import LAYOUTS, LESS, NULL_OR_ONE, PairCondition, joined_in_sql, key, selected
from tests.oracle.trials import Table, Views, finding, sql_differs, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

CASES_EACH = seeds()
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
NULLS: Row = (None, None, None)


@dataclass(frozen=True)
class Case:
    """The join, its inputs and condition, and the hash."""

    kind: JoinKind
    inputs: tuple[Input, Input]
    condition: PairCondition | None
    hashed: changelogs.Hash


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
    for condition in (None, LESS, NULL_OR_ONE):
        name = f"{kind}, {left_layout}, {right_layout}, {condition and condition.sql}"
        for trial in trials(name, CASES_EACH, monkeypatch):
            inputs = tuple(_random_input(trial.generator, layout) for layout in (left_layout, right_layout))
            case = Case(kind, (inputs[0], inputs[1]), condition, trial.generator.choice(changelogs.HASHES))
            batches = random_batches(case.inputs, trial.seed, batches=8)
            trial.check(functools.partial(_difference, database, case), batches, case)


def _random_input(generator: random.Random, layout: Layout) -> Input:
    return Input(layout, by_seq=generator.random() < 0.5, key_in_payload=generator.random() < 0.6)


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """Return how the join's output is wrong on these batches; None if it is right."""
    left, right = (Side(of.layout, by_seq=of.by_seq) for of in case.inputs)
    left_pad, right_pad = (pack(of.table.project(NULLS)) for of in case.inputs)
    join = Join(JoinSpec(case.kind, left, right, case.condition, left_pad, right_pad))
    tables = [of.table for of in case.inputs]
    return sql_differs(
        join,
        case.inputs,
        batches,
        lambda batch: changelogs.packed(batch, tables, case.hashed),
        functools.partial(_sql, database, case),
    )


def _sql(database: duckdb.DuckDBPyConnection, case: Case, tables: Sequence[Table]) -> Views:
    left, right = case.inputs
    extra = "" if case.condition is None else f"AND ({case.condition.sql})"
    sql = (
        f"SELECT coalesce(l.batch, r.batch), {selected('l', left)}, {selected('r', right)} FROM l {case.kind} JOIN r "
        f"ON l.batch = r.batch AND {key('l', left)} = {key('r', right)} {extra}"
    )
    return joined_in_sql(database, sql, tables)
