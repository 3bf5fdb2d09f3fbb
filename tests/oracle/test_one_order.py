"""All functions over one window see the same order of a partition's rows, equal rows included.

ROW_NUMBER tells the order. Every other function must give each row its result in that order.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clocked import Clocked, Line, job_of
from tests.seeds import seeds

ROWS = {
    "a table": "a",
    "a join": "(SELECT a.k, a.s, a.v FROM a JOIN b ON a.j = b.j) AS x",
    "a union": "(SELECT k, s, v FROM a UNION ALL SELECT j AS k, s, v FROM b) AS x",
    "elements": "(SELECT a.k, a.s, u.v FROM a CROSS JOIN UNNEST(ARRAY(a.v, 1, 1)) AS u(v)) AS x",
}
WINDOW = "OVER (PARTITION BY k ORDER BY s {how})"
QUERY = (
    "SELECT k, s, v, ROW_NUMBER() {w} AS n, RANK() {w} AS r, LAG(v) {w} AS lag, LEAD(v) {w} AS lead, "
    "FIRST_VALUE(v) {w} AS first, SUM(v) {f} AS run FROM {rows}"
)
BOUNDED = "SELECT * FROM ({query}) AS y WHERE n <= 3"
JOB = """
job: j
tables:
  a: {{mode: {mode}, columns: {{j: INT, k: INT, s: INT, v: INT}}}}
  b: {{mode: append, columns: {{j: INT, s: INT, v: INT}}}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("bounded", [False, True], ids=["all", "first"])
@pytest.mark.parametrize("rows", ROWS)
def test_functions_agree_on_the_order_of_equal_rows(tmp_path: Path, rows: str, bounded: bool, mode: str) -> None:
    """All functions agree on one order of many equal rows, which are inserted and retracted in batches of any size."""
    for number in seeds(2):
        dice = random.Random(f"{rows} {bounded} {mode} {number}")
        descending = dice.random() < 0.5
        window = WINDOW.format(how="DESC" if descending else "")
        sql = QUERY.format(w=window, f=f"{window[:-1]} ROWS UNBOUNDED PRECEDING)", rows=ROWS[rows])
        sql = BOUNDED.format(query=sql) if bounded else sql
        query = Clocked.of(job_of(tmp_path, JOB.format(mode=mode, sql=sql)))
        there: list[Mapping[str, Any]] = []
        for _ in range(8):
            query.batch(0, *(change(dice, mode, there) for _ in range(dice.choice((1, 2, 6)))))
            check(query.result, descending=descending, bounded=bounded)


def change(dice: random.Random, mode: str, there: list[Mapping[str, Any]]) -> Line:
    """Return a random insert or retraction; there are few values, so that many rows are equal."""
    if mode == "retract" and there and dice.random() < 0.3:
        return "a", "-D", there.pop(dice.randrange(len(there)))
    row = {"j": dice.randint(1, 2), "s": dice.randint(1, 2), "v": dice.randint(1, 3)}
    if dice.random() < 0.3:
        return "b", "+I", row
    there.append({**row, "k": dice.randint(1, 2)})
    return "a", "+I", there[-1]


def check(result: Sequence[Mapping[str, Any]], *, descending: bool, bounded: bool) -> None:
    """Assert that one order of the rows explains all results."""
    partitions = defaultdict(list)
    for row in result:
        partitions[row["k"]].append(row)
    for each in partitions.values():
        each.sort(key=lambda row: int(row["n"]))
        assert [row["n"] for row in each] == list(range(1, len(each) + 1))
        orders = [row["s"] for row in each]
        assert orders == sorted(orders, reverse=descending)
        values = [row["v"] for row in each]
        for at, row in enumerate(each):
            assert row["r"] == orders.index(row["s"]) + 1
            assert row["lag"] == (values[at - 1] if at else None), each
            if at + 1 < len(each) or not bounded:
                assert row["lead"] == (values[at + 1] if at + 1 < len(each) else None), each
            assert row["first"] == values[0], each
            assert row["run"] == sum(values[: at + 1]), each
