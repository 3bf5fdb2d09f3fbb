"""Joins in any order of FROM, with EXISTS beside them, against DuckDB over random changelogs.

Three to five tables stand in FROM in a random order, so that the written order has cross products, multiplies rows
early, or asks for a subquery late. Whatever order they run in, the folded result is what the SQL gives on the folded
inputs after every batch; traits hold, and nothing is taken back that is not there.
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
"""Columns of tables of the cases that hold small whole numbers, so that they meet."""
BATCHES = 6


def random_query(rng: random.Random) -> str:
    """Tables that equalities hold together, in any order, some with a condition, some asked about in a subquery."""
    tables = rng.sample(list(_NUMBERS), rng.choice((3, 3, 4, 4, 5)))
    of = {f"t{number}": table for number, table in enumerate(tables)}
    column = lambda alias: f"{alias}.{rng.choice(_NUMBERS[of[alias]])}"  # noqa: E731 -- of this query
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
    """The queries of a seed."""
    rng = random.Random(seed)
    for _ in range(3):
        yield Case(Path(f"seed_{seed}.txt"), "Random.\nsink: retract", random_query(rng), "")


@pytest.mark.parametrize("seed", seeds(6))
def test_joins_in_any_order_are_what_duckdb_says(seed: int) -> None:
    """After every batch, for every order that the planner takes."""
    for case in cases(seed):
        print(f"seed {seed}: {case.sql}")
        is_what_duckdb_says(case, seed, BATCHES)


def test_many_of_these_queries_are_not_run_as_they_are_written() -> None:
    """And with the hint ORDERED all of them are."""
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
