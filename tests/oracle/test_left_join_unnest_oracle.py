"""LEFT JOIN UNNEST and its variants with a condition in ON, against a model in plain Python.

A row is joined with all its elements for which the condition is true. If there is none, it appears once with NULLs.
This applies to conditions on elements, on their positions and on columns of the row, in every spelling.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seeds
from tests.trying import Change, folded

Row = Mapping[str, Any]
Element = tuple[Any, ...]
"""The output columns for an element."""

CONDITIONS: Mapping[str, Callable[[Row, int | None, int], bool | None]] = {
    "x > 1": lambda _, x, __: None if x is None else x > 1,
    "x > t.v": lambda row, x, _: None if None in (x, row["v"]) else x > row["v"],
    "t.v = 1": lambda row, _, __: None if row["v"] is None else row["v"] == 1,
    "x IS NULL": lambda _, x, __: x is None,
    "x IS NULL OR x % 2 = t.v % 2": lambda row, x, _: x is None or (row["v"] is not None and x % 2 == row["v"] % 2),
    "x > 0 AND t.id % 2 = 0": lambda row, x, _: x is not None and x > 0 and row["id"] % 2 == 0,
    "n = 2": lambda _, __, n: n == 2,
    "n < x": lambda _, x, n: None if x is None else n < x,
    "FALSE": lambda *_: False,
}
SPELLINGS: Mapping[str, tuple[str, int]] = {
    "unnest": ("SELECT t.id, w.x, w.n FROM t LEFT JOIN UNNEST(t.xs) WITH ORDINALITY AS w(x, n) ON {on}", 1),
    "posexplode": ("SELECT t.id, w.x, w.n FROM t LEFT JOIN LATERAL POSEXPLODE(t.xs) AS w(n, x) ON {on}", 0),
    "outer": ("SELECT t.id, w.x, w.n FROM t LEFT JOIN LATERAL POSEXPLODE_OUTER(t.xs) AS w(n, x) ON {on}", 0),
}
TABLE = {
    "mode": "retract",
    "primary_key": "id",
    "columns": {"id": "BIGINT NOT NULL", "v": "INT", "xs": "ARRAY<INT>", "m": "MAP<STRING, INT>"},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("on", CONDITIONS)
def test_a_row_stays_if_none_of_its_elements_meets_the_condition(tmp_path: Path, spelling: str, on: str) -> None:
    """A row without a matching element appears once with NULLs, through updates and deletes, in any batch size."""
    sql, first = SPELLINGS[spelling]
    met = CONDITIONS[on]
    for number in seeds(2):
        changes, rows = random_changes(random.Random(f"{spelling} {on} {number}"))
        expected = Counter[Element]()
        for row in rows:
            numbered = list(enumerate(row["xs"] or [], first))
            kept = [(row["id"], x, place) for place, x in numbered if met(row, x, place)]
            expected.update(kept or [(row["id"], None, None)])
        for size in (1, 5, len(changes)):
            found = folded(tmp_path, sql.format(on=on), {"t": TABLE}, changes, batch_rows=size)
            assert Counter(tuple(each.values()) for each in found) == expected, f"{number}, batches of {size}"


STRUCTS = "SELECT id, TRANSFORM(xs, e -> NAMED_STRUCT('a', e, 'b', e + v)) AS s FROM t"
AROUND = "t AS u LEFT JOIN UNNEST(u.xs) AS w(x) ON w.x > t.v"
OTHERS: Mapping[str, tuple[str, list[tuple[Any, ...]]]] = {
    # Keys and values of a map.
    "map": (
        "SELECT id, name, number FROM t LEFT JOIN UNNEST(m) AS w(name, number) ON number > 1 OR name = 'c'",
        [(1, "b", 2), (2, None, None), (3, None, None)],
    ),
    # An inner join whose condition filters the row that EXPLODE_OUTER adds.
    "inner": ("SELECT id, x FROM t JOIN LATERAL EXPLODE_OUTER(xs) AS w(x) ON x IS NULL OR x = 2", [(1, 2), (3, None)]),
    # A filter on the elements above the join removes the rows with NULLs.
    "narrowed": ("SELECT id, x FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 1 WHERE x < 4", [(1, 2), (1, 3)]),
    "kept": ("SELECT id, x FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 2 WHERE x IS NULL", [(2, None), (3, None)]),
    "filtered": ("SELECT id, x FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 2 WHERE id < 3", [(1, 3), (2, None)]),
    "counted": (
        "SELECT id, COUNT(x) AS n FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 1 GROUP BY id",
        [(1, 2), (2, 0), (3, 0)],
    ),
    "twice": (
        "SELECT id, x, y FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 1 LEFT JOIN UNNEST(xs) AS u(y) ON y > x",
        [(1, 2, 3), (1, 3, None), (2, None, None), (3, None, None)],
    ),
    "unread": ("SELECT id FROM t LEFT JOIN UNNEST(xs) AS w(x) ON x > 1", [(1,), (1,), (2,), (3,)]),
    "struct": (
        f"SELECT id, a, b FROM ({STRUCTS}) AS t LEFT JOIN UNNEST(s) AS w(a, b) ON a > 1 AND b > 3",
        [(1, 3, 4), (2, None, None), (3, None, None)],
    ),
    "correlated": (
        f"SELECT id, (SELECT COUNT(*) FROM {AROUND} WHERE u.id = 1) AS n FROM t",
        [(1, 2), (2, 1), (3, 1)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_stands_around_it(tmp_path: Path, name: str) -> None:
    """Maps, structs, later filters, aggregates and subqueries see the same rows."""
    sql, expected = OTHERS[name]
    rows = [
        {"id": 1, "v": 1, "xs": [1, 2, 3], "m": {"a": 1, "b": 2}},
        {"id": 2, "v": 9, "xs": [1], "m": {"a": 1}},
        {"id": 3, "v": None, "xs": [], "m": None},
    ]
    for size in (1, 3):
        changes = [{"table": "t", "op": "+I", "row": row} for row in rows]
        found = folded(tmp_path, sql, {"t": TABLE}, changes, batch_rows=size)
        assert Counter(tuple(each.values()) for each in found) == Counter(expected), f"batches of {size}"


def random_changes(dice: random.Random) -> tuple[list[Change], list[Row]]:
    """Return inserts, updates and deletes, and the rows that are left."""
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    for _ in range(25):
        id_ = dice.randrange(6)
        row = {
            "id": id_,
            "v": dice.choice([None, 0, 1, 2]),
            "xs": dice.choice([None, [], [dice.choice([None, *range(4)]) for _ in range(dice.randrange(1, 5))]]),
            "m": None,
        }
        old = rows.pop(id_, None)
        if old is not None and dice.random() < 0.3:
            changes.append({"table": "t", "op": "-D", "row": old})
            continue
        if old is not None:
            changes.append({"table": "t", "op": "-U", "row": old})
        changes.append({"table": "t", "op": "+I" if old is None else "+U", "row": row})
        rows[id_] = row
    return changes, list(rows.values())
