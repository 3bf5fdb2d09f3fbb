"""A join of two derived tables of the same rows with different columns, against DuckDB over random changelogs.

The rows are those of a table, of a join, of groups, or the first of each partition. The folded result equals the SQL
over the folded inputs after every batch, and no state is kept twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalOperator
from rowkind.service.physical.tree import walk
from tests.plan.against_duckdb import is_what_duckdb_says
from tests.plan.cases import Case, planned
from tests.seeds import seeds

_ROWS = {
    "orders o": ("o.customer_id", ("o.order_id", "o.amount * 2", "o.status", "UPPER(o.status)")),
    "orders o JOIN customers c ON o.customer_id = c.customer_id": (
        "o.customer_id", ("o.order_id", "c.name", "c.country", "CONCAT(c.name, o.status)")
    ),
    "orders o LEFT JOIN payments p ON o.order_id = p.order_id AND p.paid > o.amount": (
        "o.order_id", ("p.payment_id", "p.paid", "p.method", "o.status")
    ),
    "stock s JOIN sales t ON s.shop = t.shop AND s.item = t.item GROUP BY s.shop": (
        "s.shop", ("COUNT(*)", "SUM(t.paid)", "MAX(s.quantity + t.paid)", "COUNT(t.paid) FILTER (WHERE s.quantity > 1)")
    ),
    "moves m GROUP BY m.shop": ("m.shop", ("COUNT(*)", "MIN(m.item)", "COUNT(DISTINCT m.quantity)", "MAX(m.quantity)")),
    """(SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY amount, order_id) AS n FROM orders) r
    WHERE r.n <= 2""": ("r.customer_id", ("r.order_id", "r.amount", "r.status", "r.amount + 1")),
}  # fmt: skip
"""The rows, the column on which two derived tables of them are joined, and other columns."""
BATCHES = 6


def cases(seed: int) -> Iterator[Case]:
    """Yield the queries of a seed, one for each kind of rows."""
    rng = random.Random(seed)
    for rows, (key, columns) in _ROWS.items():
        first, second = rng.sample(columns, 2)
        extra = rng.choice(columns)
        selects = [
            f"(SELECT {key} AS k, {first} AS x FROM {rows})",
            f"(SELECT {key} AS k, {second} AS x, {extra} AS y FROM {rows})",
        ]
        rng.shuffle(selects)
        kind = rng.choice(("JOIN", "LEFT JOIN"))
        sql = f"SELECT a.k, a.x, b.x AS other FROM {selects[0]} a {kind} {selects[1]} b ON a.k = b.k"
        yield Case(Path(f"seed_{seed}.txt"), "Random.\nsink: retract", sql, "")


@pytest.mark.parametrize("seed", seeds(4))
def test_rows_with_columns_for_both_are_what_duckdb_says(seed: int) -> None:
    """After every batch the result equals DuckDB's, with one operator for both uses of the rows."""
    for case in cases(seed):
        print(f"seed {seed}: {case.sql}")
        _, sink = planned(case)
        operators = sum(isinstance(node, PhysicalOperator) for node in walk(sink))
        assert len(graph([sink]).operators) == (operators - 1) // 2 + 1, "what is below the join is there once"
        is_what_duckdb_says(case, seed, BATCHES)
