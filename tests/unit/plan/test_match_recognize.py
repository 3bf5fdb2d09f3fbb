"""MATCH_RECOGNIZE from SQL to rows: Flink's examples, late rows, the times of results, and EXPLAIN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from tests.clocked import Clocked, job_of

JOB = """
job: ticker
kafka: {{bootstrap.servers: x}}
registry: {{url: "http://x"}}
checkpoint: x
tables:
  Ticker:
    topic: ticker
    mode: append
    columns: {{symbol: STRING NOT NULL, rowtime: TIMESTAMP NOT NULL, price: INT NOT NULL, tax: INT}}
    watermark: {{column: rowtime, delay: {delay}}}
sinks:
  result:
    topic: result
    mode: append
    sql: |
{sql}
{settings}
"""
DIP = """
SELECT * FROM Ticker MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY rowtime
    MEASURES
        START_ROW.rowtime AS start_tstamp,
        LAST(PRICE_DOWN.rowtime) AS bottom_tstamp,
        LAST(PRICE_UP.rowtime) AS end_tstamp
    ONE ROW PER MATCH
    AFTER MATCH SKIP TO LAST PRICE_UP
    PATTERN (START_ROW PRICE_DOWN+ PRICE_UP)
    DEFINE
        PRICE_DOWN AS
            (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price) OR
                PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1),
        PRICE_UP AS
            PRICE_UP.price > LAST(PRICE_DOWN.price, 1)
) MR"""
AVERAGE = """
SELECT * FROM Ticker MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY rowtime
    MEASURES FIRST(A.rowtime) AS start_tstamp, LAST(A.rowtime) AS end_tstamp, AVG(A.price) AS avgPrice
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A+ B)
    DEFINE A AS AVG(A.price) < 15
) MR"""
TOTAL = """
SELECT * FROM Ticker MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY rowtime
    MEASURES C.rowtime AS dropTime, A.price - C.price AS dropDiff
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A B* C) WITHIN INTERVAL '1' HOUR
    DEFINE B AS B.price > A.price - 10, C AS C.price < A.price - 10
) MR"""
PRICES = ((0, 12), (1, 17), (2, 19), (3, 21), (4, 25), (5, 18), (6, 15), (7, 14), (8, 24), (9, 25), (10, 19))
DAY = "2018-04-01T"


def _query(folder: Path, sql: str, delay: str = "1s", settings: str = "") -> Clocked:
    indented = "\n".join(f"      {line}" for line in sql.strip().splitlines())
    return Clocked.of(job_of(folder, JOB.format(sql=indented, delay=delay, settings=settings)))


def _at(second: int) -> str:
    return f"{DAY}{10 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}Z"


def _row(second: int, price: int, symbol: str = "ACME") -> tuple[str, str, dict[str, Any]]:
    return "Ticker", "+I", {"symbol": symbol, "rowtime": _at(second), "price": price, "tax": 1}


def test_the_dip_of_flinks_example_is_found_as_soon_as_the_watermark_is_there(tmp_path: Path) -> None:
    """A match is emitted once the watermark has passed its last row."""
    query = _query(tmp_path, DIP)
    for second, price in PRICES[:10]:
        query.batch(0, _row(second, price))
    assert not query.result
    query.batch(0, _row(*PRICES[10]))
    (found,) = query.result
    assert list(found.values()) == ["ACME", _at(4), _at(7), _at(8)]


def test_an_average_over_the_rows_so_far_counts_the_row_in_question(tmp_path: Path) -> None:
    """Flink's example of AVG in DEFINE: the average includes the row that is being tested."""
    query = _query(tmp_path, AVERAGE)
    prices = (12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30)
    query.batch(0, *(_row(second, price) for second, price in enumerate(prices)))
    query.end()
    assert [list(each.values()) for each in query.result] == [
        ["ACME", _at(0), _at(3), 14.5],
        ["ACME", _at(5), _at(10), 13.5],
    ]


def test_within_lets_go_of_what_takes_too_long(tmp_path: Path) -> None:
    """Flink's example of WITHIN: a price drop of more than 10 matches only within an hour."""
    query = _query(tmp_path, TOTAL)
    query.batch(0, _row(0, 20), _row(1200, 17), _row(2400, 18), _row(2500, 11), _row(2900, 14), _row(3540, 9))
    query.batch(0, _row(3700, 25), _row(3800, 24), _row(3900, 10))
    query.end()
    assert [list(each.values()) for each in query.result] == [["ACME", _at(3540), 11], ["ACME", _at(3900), 15]]


def test_rows_behind_the_watermark_are_left_out(tmp_path: Path) -> None:
    """A row behind the watermark is dropped, and a row that is out of order before it is matched."""
    query = _query(tmp_path, DIP, delay="3s")
    query.batch(0, _row(0, 20), _row(2, 10))
    query.batch(0, _row(1, 15), _row(9, 16))
    query.batch(0, _row(3, 1))
    query.end()
    assert [list(each.values()) for each in query.result] == [["ACME", _at(0), _at(2), _at(9)]]


def test_all_rows_come_out_with_measures_up_to_each_and_of_all(tmp_path: Path) -> None:
    """With ALL ROWS PER MATCH, columns are in the order of SQL:2016 and measures are running or final."""
    query = _query(
        tmp_path,
        """
        SELECT * FROM Ticker MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY rowtime
            MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS n, SUM(price) AS so_far, FINAL SUM(price) AS total
            ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW
            PATTERN (A B?) DEFINE A AS A.price > 10, B AS B.price <= 10
        )
        """,
    )
    query.batch(0, _row(0, 20), _row(1, 5), _row(2, 6), _row(3, 11), _row(4, 12))
    query.end()
    assert list(query.result[0]) == ["symbol", "rowtime", "c", "n", "so_far", "total", "price", "tax"]
    found = [(each["c"], each["n"], each["so_far"], each["total"], each["price"]) for each in query.result]
    assert found == [("A", 1, 20, 25, 20), ("B", 1, 25, 25, 5), ("A", 2, 11, 11, 11), ("A", 3, 12, 12, 12)]


def test_matches_are_rows_like_others(tmp_path: Path) -> None:
    """Matches can be filtered, aliased, and aggregated in windows by their time if WITHIN bounds it."""
    query = _query(
        tmp_path,
        """
        SELECT window_end, COUNT(*) AS dips FROM TABLE(TUMBLE((
            SELECT symbol AS s, at FROM Ticker AS t MATCH_RECOGNIZE (
                PARTITION BY symbol ORDER BY rowtime MEASURES MATCH_ROWTIME() AS at
                PATTERN (A B) WITHIN INTERVAL '5' SECOND DEFINE B AS B.price < A.price
            ) AS m WHERE symbol <> 'NONE'
        ), DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
        """,
    )
    query.batch(0, _row(0, 9), _row(1, 8), _row(3, 7), _row(4, 6), _row(5, 5, "NONE"), _row(6, 4, "NONE"))
    query.batch(0, _row(15, 9))
    assert not query.result
    query.batch(0, _row(17, 1))
    assert query.result == [{"window_end": _at(10), "dips": 2}]


def test_a_condition_that_fails_on_a_row_stops_nothing_unless_the_row_is_asked_for(tmp_path: Path) -> None:
    """A condition that fails on a row raises an error only if the search needs its value for that row."""
    sql = """
    SELECT * FROM Ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY rowtime MEASURES B.price AS p
        PATTERN (A B) DEFINE A AS A.price > 0, B AS CAST(100 / B.price AS TINYINT) > 20
    )
    """
    rows = _row(0, 0), _row(1, 5), _row(2, 4), _row(3, 0)
    query = _query(tmp_path, sql)
    query.batch(0, *rows[:3], _row(3, 9))
    query.end()
    assert [each["p"] for each in query.result] == [4]
    fails = _query(tmp_path, sql.replace("A.price > 0", "true"))
    with pytest.raises(ExpressionError, match="TINYINT"):
        fails.batch(0, _row(0, 5), _row(1, 0), _row(5, 5))
    passes = _query(
        tmp_path, sql.replace("A.price > 0", "true"), settings="on_error: dead_letter\ndead_letters: {topic: d}"
    )
    passes.batch(0, _row(0, 5), _row(1, 0), _row(5, 5))
    assert not passes.result


def test_a_match_that_cannot_be_gone_on_from_stops_the_query(tmp_path: Path) -> None:
    """Skipping to a match's first row stops the query; with another `on_error` the search continues at the next row."""
    sql = """
    SELECT * FROM Ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY rowtime MEASURES FIRST(price) AS p, COUNT(*) AS n
        AFTER MATCH SKIP TO LAST A PATTERN (A+ B) DEFINE A AS A.price < 10, B AS B.price > A.price
    )
    """
    # From the second row on, a match has only one row of A.
    rows = _row(0, 6), _row(1, 5), _row(2, 8), _row(3, 20), _row(4, 1)
    query = _query(tmp_path, sql)
    with pytest.raises(ExpressionError) as raised:
        query.batch(0, *rows, _row(9, 30))
    assert "AFTER MATCH SKIP TO LAST: the row to skip to is the first row of the match, so the search would" in str(
        raised.value
    )
    assert "on the row from change 3 of Ticker. Change the pattern so that every match has such a row" in str(
        raised.value
    )
    passes = _query(tmp_path, sql, settings="on_error: dead_letter\ndead_letters: {topic: d}")
    passes.batch(0, *rows, _row(9, 30))
    assert [(each["p"], each["n"]) for each in passes.result] == [(6, 4), (8, 2)]


def test_a_match_without_the_row_to_go_on_from_stops_the_query(tmp_path: Path) -> None:
    """A match without a row of the SKIP TO variable stops the query."""
    sql = """
    SELECT * FROM Ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY rowtime MEASURES FIRST(price) AS p
        AFTER MATCH SKIP TO FIRST B PATTERN (A B? C) DEFINE A AS A.price = 6, B AS B.price > 6, C AS C.price < 6
    )
    """
    query = _query(tmp_path, sql)
    query.batch(0, _row(0, 6), _row(1, 7), _row(2, 5), _row(4, 9))
    assert [each["p"] for each in query.result] == [6]
    with pytest.raises(
        ExpressionError, match="there is no row to skip to, because the match has no row of that variable"
    ):
        query.batch(0, _row(5, 6), _row(6, 5), _row(9, 9))


CHANGING = JOB.replace("mode: append\n    columns", "mode: retract\n    columns")


def test_rows_of_a_table_that_change_are_matched_as_they_are_when_they_are_final(tmp_path: Path) -> None:
    """Updates and deletes before the watermark change the match; later ones are dropped."""
    sql = """
      SELECT * FROM Ticker MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY rowtime MEASURES A.price AS a, B.price AS b
          PATTERN (A B) DEFINE B AS B.price < A.price)"""
    query = Clocked.of(job_of(tmp_path, CHANGING.format(sql=sql, delay="5s", settings="")))
    query.batch(0, _row(0, 9), _row(1, 5), _row(2, 1))
    query.batch(0, ("Ticker", "-U", _row(0, 9)[2]), ("Ticker", "+U", _row(0, 7)[2]), ("Ticker", "-D", _row(1, 5)[2]))
    query.batch(0, _row(9, 9))
    assert query.result == [{"symbol": "ACME", "a": 7, "b": 1}]
    query.batch(0, ("Ticker", "-D", _row(2, 1)[2]), _row(19, 8))
    assert query.result == [{"symbol": "ACME", "a": 7, "b": 1}]


def test_rows_that_may_be_corrected_after_all_are_not_matched(tmp_path: Path) -> None:
    """With `allowed_lateness`, the window's sum is not final at the watermark, so it cannot be matched."""
    sql = """
      SELECT * FROM (SELECT window_time AS t, SUM(price) AS s FROM TABLE(TUMBLE(TABLE Ticker, DESCRIPTOR(rowtime),
      INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, window_time)
      MATCH_RECOGNIZE (ORDER BY t MEASURES A.s AS s PATTERN (A B) DEFINE B AS B.s < A.s)"""
    with pytest.raises(PlanError, match="even after the watermark has passed: remove `allowed_lateness`"):
        Clocked.of(job_of(tmp_path, JOB.format(sql=sql, delay="1s, allowed_lateness: 1h", settings="")))


def test_explain_says_what_a_pattern_keeps_and_for_how_long(tmp_path: Path) -> None:
    """EXPLAIN shows the waiting rows of a pattern and how long they are kept, and warns if WITHIN is missing."""
    plain, bounded = (" ".join(explain([_query(tmp_path, sql).sink]).replace("│", " ").split()) for sql in (DIP, TOTAL))
    assert "ONE ROW PER MATCH of (START_ROW PRICE_DOWN+ PRICE_UP) PARTITION BY MR.Ticker.symbol" in plain
    assert "keeps waiting Ticker: rows that the watermark has not reached, in order of time" in plain
    assert "until the match ends or fails, which may be never, because there is no WITHIN" in plain
    assert "PRICE_UP is PRICE_UP.price > LAST(PRICE_DOWN.price, 1)" in plain
    assert "match_1 has no WITHIN" in plain
    assert "WITHIN INTERVAL '1' HOUR" in bounded
    assert "each for 1h of event time, the maximum length of a match (WITHIN)" in bounded
    assert "has no WITHIN" not in bounded


def test_what_always_has_a_row_is_never_null(tmp_path: Path) -> None:
    """Measures of variables with a row in every match keep NOT NULL; measures of other variables are nullable."""
    sql = """
    SELECT a, b, c, d, n FROM Ticker MATCH_RECOGNIZE (
        ORDER BY rowtime
        MEASURES A.price AS a, B.price AS b, LAST(price) AS c, LAST(A.price, 1) AS d, COUNT(B.price) AS n
        PATTERN (A B? C)
    )
    """
    value = _query(tmp_path, sql).sink.value
    assert [each.name for each in value.fields if each.type.nullable] == ["b", "d"]


UNANSWERED = """
job: calls
kafka: {bootstrap.servers: x}
registry: {url: "http://x"}
checkpoint: x
tables:
  Asked:
    topic: asked
    mode: append
    columns: {id: INT NOT NULL, who: STRING NOT NULL, at: TIMESTAMP NOT NULL}
    watermark: {column: at}
  Answered:
    topic: answered
    mode: append
    columns: {id: INT NOT NULL, at: TIMESTAMP NOT NULL}
    watermark: {column: at}
sinks:
  result:
    topic: result
    mode: append
    sql: |
      SELECT first, second FROM (
          SELECT q.who, q.id, q.at AS asked, a.at AS answered FROM Asked AS q
          LEFT JOIN Answered AS a ON a.id = q.id AND a.at BETWEEN q.at AND q.at + INTERVAL '10' SECOND
      ) AS j MATCH_RECOGNIZE (
          PARTITION BY who ORDER BY asked MEASURES A.id AS first, B.id AS second
          PATTERN (A B) DEFINE A AS A.answered IS NULL, B AS B.answered IS NULL
      )
"""


def test_what_an_outer_interval_join_pads_is_a_row_that_only_comes(tmp_path: Path) -> None:
    """Null-padded rows of an outer interval join are delayed until they are final, so a pattern can read them."""
    query = Clocked.of(job_of(tmp_path, UNANSWERED))

    def asked(number: int, second: int) -> tuple[str, str, dict[str, Any]]:
        return "Asked", "+I", {"id": number, "who": "me", "at": _at(second)}

    def answered(number: int, second: int) -> tuple[str, str, dict[str, Any]]:
        return "Answered", "+I", {"id": number, "at": _at(second)}

    query.batch(0, asked(1, 0), asked(2, 1), asked(3, 2), asked(4, 3))
    query.batch(0, answered(2, 5), asked(5, 12), answered(9, 12))
    assert not query.result, "call 2 may still be answered, and call 4 is not final"
    query.batch(0, asked(6, 40), answered(9, 40))
    assert query.result == [{"first": 3, "second": 4}]
