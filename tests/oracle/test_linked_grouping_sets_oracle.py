"""ROLLUP, CUBE and GROUPING SETS in correlated subqueries, against DuckDB.

Each outer row has the groups of its own inner rows, including groups that leave out the correlated column. A row of the
set () exists only if there are rows (docs/reference/sql.md). Every query therefore has HAVING COUNT(*) > 0.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz.case import Case
from tests.fuzz.changelogs import random_changes
from tests.fuzz.running import run
from tests.fuzz.schemas import Column, Table
from tests.seeds import drawn, seeds

TABLES = (
    Table("t", "retract", (Column("id", "BIGINT", required=True), Column("k", "BIGINT"), Column("v", "INT")), ("id",)),
    Table("u", "retract", (Column("k", "BIGINT"), Column("v", "INT"), Column("s", "STRING"))),
)
PLACES = {
    "lateral": "SELECT t.id, x.* FROM t, LATERAL ({inner}) AS x",
    "left lateral": "SELECT t.id, x.* FROM t LEFT JOIN LATERAL ({inner}) AS x ON x.c0 > 1",
    "sum": "SELECT id, (SELECT SUM(x.c0) FROM ({inner}) AS x) AS n FROM t",
    "count": "SELECT id, (SELECT COUNT(*) FROM ({inner}) AS x) AS n FROM t",
    "exists": "SELECT id FROM t WHERE EXISTS ({inner} AND SUM(u.v) > 3)",
    "not exists": "SELECT id FROM t WHERE NOT EXISTS ({inner} AND COUNT(*) > 1)",
    "in": "SELECT id FROM t WHERE v IN (SELECT x.c0 FROM ({inner}) AS x)",
    "ranked": ("SELECT id, (SELECT x.c0 FROM ({inner}) AS x ORDER BY x.c0 DESC NULLS LAST, x.c1 LIMIT 1) AS n FROM t"),
}
LINKS = (
    "u.k = t.k",
    "u.k = t.k",
    "u.k = t.k AND u.v <= t.v",
    "u.k + 1 = t.k",
    "u.k <=> t.k",
    "u.k < t.k",
    "u.v = t.v",
    "u.k = t.k AND u.v = t.v",
    "u.v > 1 AND t.k = u.k",
)


@pytest.mark.parametrize("place", PLACES)
def test_each_row_around_has_all_sets_of_its_rows(place: str) -> None:
    """Each outer row has all grouping sets of its inner rows, also after retractions, in batches of all sizes."""
    for dice in drawn(f"linked sets {place}", seeds(6)):
        changes = random_changes(dice, TABLES, 30)
        entries = {each.name: each.entry for each in TABLES}
        sql = PLACES[place].format(inner=random_inner(dice))
        for size in (1, 4, len(changes)):
            outcome = run(Case("linked sets", sql, entries, {"mode": "retract"}, size, changes))
            assert outcome.verdict == "agreed", f"batches of {size}: {outcome}\n{sql}"


def random_inner(dice: random.Random) -> str:
    """Return a subquery with grouping sets over `u`, with a numeric column c0 and a column c1."""
    columns = ["u.k", "u.v", "u.s", "u.v % 2", "t.k"]
    named = dice.sample(columns, dice.choice([1, 2, 2, 3]))
    sets = _sets(dice, named)
    call = dice.choice(["SUM(u.v)", "COUNT(*)", "COUNT(u.v)", "MAX(u.v)"])
    more = dice.choice([*named, *(f"GROUPING({each})" for each in named), "COUNT(DISTINCT u.s)"])
    return f"SELECT {call} AS c0, {more} AS c1 FROM u WHERE {dice.choice(LINKS)} GROUP BY {sets} HAVING COUNT(*) > 0"


def _sets(dice: random.Random, columns: list[str]) -> str:
    listed = ", ".join(columns)
    match dice.randrange(5):
        case 0 | 1:
            return f"ROLLUP ({listed})"
        case 2:
            return f"CUBE ({listed})"
        case 3:
            some = [f"({', '.join(dice.sample(columns, dice.randrange(len(columns) + 1)))})" for _ in range(2)]
            return f"GROUPING SETS (({listed}), {', '.join(some)})"
        case _:
            return f"{columns[0]}, ROLLUP ({', '.join(columns[1:] or columns)})"
