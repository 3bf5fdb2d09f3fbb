"""The text of SQL trees: any part can be written as text with the same meaning."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from rowkind.service.plan import syntax
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from rowkind.service.plan.pipeline import plan
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.syntax import sql_text
from tests.clocked import job_of

MATCH = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id MEASURES FINAL LAST(b.id, 1) AS x, CLASSIFIER() AS c ALL ROWS PER "
    "MATCH AFTER MATCH SKIP TO LAST b PATTERN (a b+ (c | d)?) WITHIN INTERVAL '1' HOUR SUBSET u = (a, b) "
    "DEFINE b AS b.id > a.id, c AS COUNT(u.id) > 1) AS m"
)
RELATIONS = (
    "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS w",
    "TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '1' HOUR, SIZE => INTERVAL '2' HOUR))",
    "TABLE(SESSION(TABLE t PARTITION BY (k, id), DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS w",
    "TABLE(SESSION((SELECT * FROM t) PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS w",
    f"t {MATCH}",
    "t MATCH_RECOGNIZE (ORDER BY ts MEASURES a.id AS x PATTERN (a)) AS m",
    "t MATCH_RECOGNIZE (ORDER BY ts MEASURES a.k AS k AFTER MATCH SKIP TO NEXT ROW PATTERN (a) DEFINE a AS a.k = 1)",
)
PLACES = (
    "SELECT x FROM t INTERSECT ALL SELECT COUNT(*) AS x FROM {0}",
    "SELECT COUNT(*) AS x FROM {0} EXCEPT ALL SELECT k FROM t",
    "SELECT k, (SELECT COUNT(*) FROM {0}) FROM t",
    "SELECT SUM((SELECT COUNT(*) FROM {0})) FROM t",
    "SELECT k, COUNT(*) FILTER (WHERE k IN (SELECT COUNT(*) FROM {0})) FROM t GROUP BY k",
    "SELECT k, LISTAGG(k, ',') WITHIN GROUP (ORDER BY (SELECT COUNT(*) FROM {0})) FROM t GROUP BY k",
    "SELECT k, MAX(CASE WHEN EXISTS (SELECT 1 FROM {0}) THEN k END) FROM t GROUP BY k",
    "SELECT k > (SELECT COUNT(*) FROM {0}), COUNT(*) FROM t GROUP BY k > (SELECT COUNT(*) FROM {0})",
    "SELECT k FROM t WHERE k > ALL (SELECT COUNT(*) FROM {0})",
    "SELECT k FROM t WHERE (SELECT COUNT(*) FROM {0}) IN (SELECT k FROM t)",
    "SELECT k FROM t HAVING SUM(k) > (SELECT COUNT(*) FROM {0})",
    "SELECT id, SUM((SELECT COUNT(*) FROM {0})) OVER (PARTITION BY k ORDER BY ts) FROM t",
    "SELECT id, LAG(k + (SELECT COUNT(*) FROM {0})) OVER (ORDER BY ts) FROM t",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY (SELECT COUNT(*) FROM {0})) AS n FROM t QUALIFY n < 3",
    "SELECT id FROM t ORDER BY (SELECT COUNT(*) FROM {0}) LIMIT 3",
    "SELECT id, n FROM t, LATERAL (SELECT COUNT(*) AS n FROM {0}) AS x",
    "SELECT t.id FROM t LEFT JOIN t AS o ON t.id = o.id AND t.k > (SELECT COUNT(*) FROM {0})",
    "SELECT EXPLODE(ARRAY((SELECT COUNT(*) FROM {0}))) FROM t",
    "SELECT id FROM t LEFT JOIN UNNEST(ARRAY(k)) AS u(x) ON x > (SELECT COUNT(*) FROM {0})",
    "SELECT id FROM TABLE(TUMBLE((SELECT * FROM {0}), DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS o",
    "SELECT id FROM {0}.x",
    "SELECT id + FROM {0}",
    "SELECT * EXCEPT (nothing) FROM {0}",
    "SELECT ARRAY[(SELECT COUNT(*) FROM {0})] FROM t",
    "SELECT id, COUNT(*) OVER (ORDER BY ts RANGE (SELECT COUNT(*) FROM {0}) PRECEDING) FROM t",
)
JOB = """
job: texts
kafka: {{bootstrap.servers: x}}
registry: {{url: "http://x"}}
checkpoint: x
tables:
  t:
    topic: t
    mode: append
    columns: {{id: BIGINT NOT NULL, k: BIGINT, x: BIGINT, ts: TIMESTAMP NOT NULL}}
    watermark: {{column: ts, delay: 1s}}
sinks: {{o: {{topic: o, mode: retract, sql: {sql}}}}}
"""


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_text_of_a_query_is_the_query(relation: str) -> None:
    """Parsing the text of a query gives the same tree."""
    tree = sqlglot.parse_one(f"SELECT * FROM {relation} WHERE x > 1", read=RowkindSql)
    assert _plain(sqlglot.parse_one(sql_text(tree), read=RowkindSql)) == _plain(tree)


def test_each_own_piece_of_syntax_can_be_written() -> None:
    """These relations, and one with a watermark, contain every class of Rowkind's own syntax, and each has a text."""
    marked = "t WATERMARK ts DELAY OF INTERVAL 5 SECONDS AS s"
    trees = [sqlglot.parse_one(f"SELECT * FROM {each}", read=RowkindSql) for each in (*RELATIONS, marked)]
    own = {each for _, each in inspect.getmembers(syntax, inspect.isclass) if issubclass(each, exp.Expression)}
    found = [node for tree in trees for node in tree.walk() if type(node) in own]
    assert {type(node) for node in found} == own
    assert all(map(sql_text, found))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_window_or_a_pattern_may_stand_in_any_subquery(place: str, tmp_path: Path) -> None:
    """Such a query is planned and explained, or refused with a reason, and no other error is raised."""
    for relation in RELATIONS:
        job = job_of(tmp_path, JOB.format(sql=json.dumps(place.format(relation))))
        with suppress(PlanError):
            assert explain([plan(job, "o")])


def _plain(tree: exp.Expr) -> exp.Expr:
    """Return the tree with an explicit ONE ROW PER MATCH where the clause is missing."""
    tree = tree.copy()
    for each in tree.find_all(syntax.MatchClause):
        each.set("rows", each.args.get("rows") or exp.Var(this="ONE ROW"))
    return tree
