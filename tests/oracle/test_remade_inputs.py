"""Trees of joins on one key, which store only their inputs, against DuckDB over random changelogs.

Inner, left, right and full joins are nested in random trees on both sides. Some are derived tables that leave out
columns, some have further conditions, over tables of all modes with and without keys. The folded result equals the SQL
over the folded inputs after every batch. Traits hold, and no row is retracted that is not in the result.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.tree import remade_inputs, walk
from tests.plan.against_duckdb import is_what_duckdb_says
from tests.plan.cases import Case, planned
from tests.seeds import seeds

_TABLES = {
    "orders": ("order_id", "amount"),
    "customers": ("name",),
    "signups": ("plan",),
    "clicks": ("page",),
    "sales": ("paid",),
}
"""Tables with a customer_id, and the other columns that are read from each."""
BATCHES = 6


class _Tree:
    """A random tree of joins by customer_id."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._whole = set[str]()
        self._aliases = (f"t{number}" for number in itertools.count())

    def query(self) -> str:
        """Return a query over three to five tables."""
        source, columns = self._joined(self._rng.choice((3, 3, 4, 5)))
        some = self._rng.sample(columns, self._rng.randint(1, len(columns)))
        return f"SELECT {', '.join(f'{each} AS c{number}' for number, each in enumerate(some))} FROM {source}"

    def _joined(self, tables: int) -> tuple[str, list[str]]:
        """Return a FROM item and its columns; the first is the key, for an outer join that of the preserved side."""
        if tables == 1:
            table, alias = self._rng.choice(list(_TABLES)), next(self._aliases)
            return f"{table} {alias}", [f"{alias}.{name}" for name in ("customer_id", *_TABLES[table])]
        ours = tables - 1 if self._rng.random() < 0.7 else self._rng.randint(1, tables - 1)
        (left, mine), (right, theirs) = self._joined(ours), self._joined(tables - ours)
        kind = self._rng.choice(("INNER", "INNER", "LEFT", "LEFT", "LEFT", "RIGHT", "FULL"))
        on = f"{mine[0]} = {theirs[0]}"
        if self._rng.random() < 0.15:
            on += f" AND {self._rng.choice(mine)} IS NOT NULL AND {theirs[-1]} IS NOT NULL"
        if tables - ours > 1 and right not in self._whole:
            right = f"({right})"
        columns = [*theirs, *mine] if kind == "RIGHT" else [*mine, *theirs]
        return self._derived(f"{left} {kind} JOIN {right} ON {on}", columns)

    def _derived(self, source: str, columns: list[str]) -> tuple[str, list[str]]:
        if self._rng.random() < 0.7:
            return source, columns
        alias, some = next(self._aliases), [columns[0], *self._rng.sample(columns, self._rng.randint(1, len(columns)))]
        named = [f"{each} AS n{number}" for number, each in enumerate(some)]
        of = [f"{alias}.n{number}" for number in range(len(some))]
        derived = f"(SELECT {', '.join(named)} FROM {source}) {alias}"
        self._whole.add(derived)
        return derived, of


def cases(seed: int) -> Iterator[Case]:
    """Yield the queries of a seed, without a TTL."""
    rng = random.Random(seed)
    for _ in range(4):
        yield Case(Path(f"seed_{seed}.txt"), "Random.\nsink: retract\nttl: null", _Tree(rng).query(), "")


@pytest.mark.parametrize("seed", seeds(8))
def test_trees_of_joins_by_one_key_are_what_duckdb_says(seed: int) -> None:
    """After every batch the result of such a tree equals DuckDB's."""
    for case in cases(seed):
        print(f"seed {seed}: {case.sql}")
        is_what_duckdb_says(case, seed, BATCHES)


def test_many_of_these_trees_keep_nothing_in_between() -> None:
    """Many of these trees recompute join inputs instead of storing them, on either side and at several levels."""
    found = [_remade(planned(case)[1]) for seed in range(25) for case in cases(seed)]
    assert sum(map(bool, found)) > len(found) / 3
    assert {name for each in found for name in each} == {"left", "right"}
    assert max(map(len, found)) > 2


def _remade(sink: PhysicalSink) -> list[str]:
    return [name for node in walk(sink) for name, _ in remade_inputs(node)]  # type: ignore[arg-type]
