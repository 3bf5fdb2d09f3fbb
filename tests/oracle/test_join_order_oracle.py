"""Joins in any order of FROM, together with EXISTS, against DuckDB over random changelogs.

Three to five tables are in FROM in a random order. The written order may have cross products, multiply rows early, or
evaluate a subquery late. For every order in which they run, the folded result equals the SQL over the folded inputs
after every batch. Traits hold, and no row is retracted that is not in the result.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.physical.tree import walk
from tests.plan.against_duckdb import is_what_duckdb_says
from tests.plan.cases import Case, planned
from tests.seeds import seeds

_NUMBERS = {
    "orders": ("order_id", "customer_id"),
    "payments": ("payment_id", "order_id"),
    "customers": ("customer_id",),
    "signups": ("customer_id",),
    "sales": ("number", "customer_id", "shop", "paid"),
    "stock": ("shop", "quantity"),
    "clicks": ("customer_id",),
    "moves": ("shop",),
}
"""Columns of the tables of the cases that have small integers, so that rows match."""
BATCHES = 6


def random_query(rng: random.Random) -> str:
    """Return a query over tables linked by equalities, in any order, some with a filter or an EXISTS subquery."""
    tables = rng.sample(list(_NUMBERS), rng.choice((3, 3, 4, 4, 5)))
    of = {f"t{number}": table for number, table in enumerate(tables)}
    column = lambda alias: f"{alias}.{rng.choice(_NUMBERS[of[alias]])}"  # noqa: E731 -- used for this query only
    aliases = list(of)
    where = [f"{column(aliases[rng.randrange(at)])} = {column(aliases[at])}" for at in range(1, len(aliases))]
    if rng.random() < 0.3:
        where.append(f"{column(aliases[0])} = {column(aliases[-1])}")
    if rng.random() < 0.5:
        where.append(f"{column(rng.choice(aliases))} {rng.choice(('>', '<', '<>'))} 3")
    if rng.random() < 0.5:
        word, table = rng.choice(("EXISTS", "NOT EXISTS")), rng.choice(list(_NUMBERS))
        link = f"e.{rng.choice(_NUMBERS[table])} = {column(rng.choice(aliases))}"
        where.append(f"{word} (SELECT 1 FROM {table} e WHERE {link})")
    rng.shuffle(where)
    rng.shuffle(aliases)
    selected = ", ".join(f"{column(alias)} AS c_{alias}" for alias in aliases)
    return f"SELECT {selected} FROM {', '.join(f'{of[each]} {each}' for each in aliases)} WHERE {' AND '.join(where)}"


def cases(seed: int) -> Iterator[Case]:
    """Yield the queries of a seed."""
    rng = random.Random(seed)
    for _ in range(3):
        yield Case(Path(f"seed_{seed}.txt"), "Random.\nsink: retract", random_query(rng), "")


@pytest.mark.parametrize("seed", seeds(6))
def test_joins_in_any_order_are_what_duckdb_says(seed: int) -> None:
    """After every batch the result equals DuckDB's, for every join order that the planner chooses."""
    for case in cases(seed):
        print(f"seed {seed}: {case.sql}")
        is_what_duckdb_says(case, seed, BATCHES)


def test_many_of_these_queries_are_not_run_as_they_are_written() -> None:
    """Many of these queries run in another order than written; with the hint ORDERED none does."""
    moved = 0
    for case in (each for seed in range(5) for each in cases(seed)):
        hinted = replace(case, sql=case.sql.replace("SELECT", "SELECT /*+ ORDERED */", 1))
        placed = [
            [node.placed for node in walk(planned(each)[1]) if isinstance(node, PhysicalJoin) and node.placed]
            for each in (case, hinted)
        ]
        assert not placed[1], hinted.sql
        moved += bool(placed[0])
    assert moved > 5
