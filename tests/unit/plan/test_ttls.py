"""How long operators keep rows: `ttl` of a table, `ttl` of the job and a hint apply to the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.pipeline import plan
from tests.clocked import job_of

QUERIES = {
    "first row of a key, final": "SELECT k, v FROM ({numbers}) AS x WHERE n = 1",
    "first rows of a key, final": "SELECT k, v, n FROM ({numbers}) AS x WHERE n <= 3",
    "running numbers, final": "SELECT k, v, n FROM ({numbers}) AS x",
    "OVER, final": "SELECT {hint} k, SUM(v) OVER (PARTITION BY k ORDER BY at) AS s FROM t",
    "LAG, final": "SELECT {hint} k, LAG(v) OVER (PARTITION BY k ORDER BY at) AS s FROM t",
    "first row": "SELECT k, v FROM ({arrivals}) AS x WHERE n = 1",
    "groups": "SELECT {hint} k, SUM(v) AS s FROM t GROUP BY k",
    "groups of the last day": "SELECT {hint} k, SUM(v) AS s FROM t WHERE at > NOW() - INTERVAL 1 DAY GROUP BY k",
    "join of the last day": "SELECT {hint} t.k FROM t JOIN o ON t.k = o.k AND t.at > NOW() - INTERVAL 1 DAY",
    "stamps": "SELECT k, MAX(p) AS p FROM (SELECT k, PROCTIME() AS p FROM t) AS x GROUP BY k",
    "split DISTINCT": "SELECT {hint_and} k, COUNT(DISTINCT v) AS n, SUM(v) AS s FROM t GROUP BY k",
    "sessions": "SELECT k, v FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(no), INTERVAL '1' DAY))",
    "windows in panes": "SELECT {hint} k, SUM(v) AS s FROM t GROUP BY k, window(no, '1 day', '5 minutes')",
    "union": "SELECT k, SUM(v) AS s FROM (SELECT k, v FROM t UNION ALL SELECT k, v FROM t WHERE v > 3) GROUP BY k",
    "array": "SELECT {hint} k, COUNT(*) AS n FROM t CROSS JOIN UNNEST(ARRAY(v, 2)) AS u(e) GROUP BY k",
}
NUMBERS = "SELECT {hint} *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at) AS n FROM t"
ARRIVALS = "SELECT {hint} *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY PROCTIME()) AS n FROM t"
FINAL = [name for name in QUERIES if name.endswith(", final")]


def planned(folder: Path, sql: str, *, job: str = "", table: str = "", hint: str = "", append: bool) -> PhysicalSink:
    """Return the plan of a query with a TTL set in the job, the table or a hint."""
    hints = {"hint": f"/*+ {hint} */" if hint else "", "hint_and": f"/*+ SPLIT_DISTINCT{', ' * bool(hint)}{hint} */"}
    inner = {"numbers": NUMBERS.format(**hints), "arrivals": ARRIVALS.format(**hints)}
    columns = "{k: STRING, v: INT, at: TIMESTAMP NOT NULL, no: TIMESTAMP NOT NULL}"
    text = (
        f"job: j\n{job}\ntables:\n"
        f"  t: {{mode: append, {table} columns: {columns}, watermark: {{column: at, delay: 0s}}}}\n"
        f"  o: {{mode: append, {table} columns: {{k: STRING}}}}\n"
        f'sinks:\n  o: {{mode: {"append" if append else "retract"}, sql: "{sql.format(**hints, **inner)}"}}\n'
    )
    return plan(job_of(folder, text), "o")


def ttls(node: Any) -> Iterator[int | None]:
    """Yield every TTL in a plan or in a part of it."""
    if isinstance(node, tuple):
        for each in node:
            yield from ttls(each)
    elif is_dataclass(node):
        for each in fields(node):
            value = getattr(node, each.name)
            if each.name == "ttl_ms" and not isinstance(node, SourceTable):
                yield value
            else:
                yield from ttls(value)


@pytest.mark.parametrize("name", QUERIES)
def test_the_ttl_of_a_table_is_that_of_a_job(tmp_path: Path, name: str) -> None:
    """A table's TTL has the effect of a job's, also after delays, stamps, unions, UNNEST and two-step aggregates."""
    sql, append = QUERIES[name], name in FINAL
    without = planned(tmp_path, sql, append=append)
    of_job = planned(tmp_path, sql, job="ttl: 10s", append=append)
    of_table = planned(tmp_path, sql, table="ttl: 10s,", append=append)
    assert 10_000 not in ttls(without)
    assert 10_000 in ttls(of_job), "the case is one with state"
    assert list(ttls(of_table)) == list(ttls(of_job))


@pytest.mark.parametrize("name", [each for each in QUERIES if "hint" in QUERIES[each] or "numbers" in QUERIES[each]])
def test_a_hint_counts_behind_what_delays_rows(tmp_path: Path, name: str) -> None:
    """The hint STATE_TTL on a table also applies after an operator that delays the table's rows."""
    sql, append = QUERIES[name], name in FINAL
    hinted = planned(tmp_path, sql, hint="STATE_TTL('t' = '10s')", append=append)
    assert 10_000 in ttls(hinted)


def test_of_a_union_the_longest_ttl_counts(tmp_path: Path) -> None:
    """An operator over several tables has their longest TTL, and none if one of the tables has none."""
    for first, second, expected in (("10s", "1m", 60_000), ("10s", None, None)):
        tables = "".join(
            f"  {name}: {{mode: append, {f'ttl: {ttl},' if ttl else ''} columns: {{k: STRING}}}}\n"
            for name, ttl in (("t", first), ("o", second))
        )
        sql = "SELECT k, COUNT(*) AS n FROM (SELECT k FROM t UNION ALL SELECT k FROM o) GROUP BY k"
        job = job_of(tmp_path, f'job: j\ntables:\n{tables}sinks:\n  o: {{mode: retract, sql: "{sql}"}}\n')
        assert set(ttls(plan(job, "o").input)) == {expected}
