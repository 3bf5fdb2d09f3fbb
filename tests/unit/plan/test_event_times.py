"""The columns that follow the event times of tables, and how far behind a watermark they may be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.service.job.load import load
from rowkind.service.plan.columns import columns
from rowkind.service.plan.phases import PASSES
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.traits.event_times import event_times

JOB = """
job: times
tables:
  ticks:
    mode: append
    columns: {ms: BIGINT NOT NULL, k: STRING NOT NULL}
    watermark: {column: TIMESTAMP_MILLIS(ms), delay: "CASE WHEN k = 'x' THEN INTERVAL '1' MINUTE END"}
  bids: {mode: append, columns: {id: BIGINT NOT NULL, k: STRING NOT NULL, ts: TIMESTAMP, local: TIMESTAMP_NTZ}}
  quotes: {mode: append, columns: {k: STRING, ts: TIMESTAMP NOT NULL}, watermark: {column: ts}}
  asks: {mode: upsert, primary_key: [id], columns: {id: BIGINT NOT NULL, k: STRING NOT NULL, at: TIMESTAMP NOT NULL}}
  beats:
    {mode: append, columns: {id: BIGINT, ms: BIGINT, zone: STRING, ts: TIMESTAMP}, watermark: "TIMESTAMP_MILLIS(ms)"}
  clocks: {mode: append, columns: {d: DATE, h: INT, ts: TIMESTAMP}, watermark: "COALESCE(ts, CAST(d AS TIMESTAMP))"}
"""
MINUTE = 60_000
TUMBLE = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTE))"
ASKED = "TABLE(TUMBLE(TABLE asks, DESCRIPTOR(at), INTERVAL '10' MINUTE))"
HOP = "TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '20' MINUTE))"
CUMULATE = "TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '20' MINUTE))"
SESSION = "TABLE(SESSION(TABLE bids PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE))"
EDGES = "a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k"
MILLIS = "beats.TIMESTAMP_MILLIS(ms) time 0"
NUMBER = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY ts)"

CASES = [
    ("SELECT ts AS a, local AS b, id FROM bids", "a: bids.ts time 0, b: bids.local time 0"),
    ("SELECT ts AS a FROM bids WHERE k = 'x'", "a: bids.ts time 0"),
    ("SELECT at AS a FROM asks", "a: asks.at time 0"),
    (
        f"SELECT window_start AS a, window_end AS b, window_time AS c FROM {TUMBLE}",
        "a: bids.ts window_start 10, b: bids.ts window_end 0, c: bids.ts window_time 1ms",
    ),
    (
        f"SELECT window_start AS a, window_end AS b, ts AS c FROM {HOP}",
        "a: bids.ts window_start 20, b: bids.ts window_end 0, c: bids.ts time 0",
    ),
    (
        f"SELECT window_start AS a, window_end AS b, window_time AS c FROM {CUMULATE}",
        "a: bids.ts window_start 20, b: bids.ts window_end 0, c: bids.ts window_time 1ms",
    ),
    (
        "SELECT window.start AS a, window_time(window) AS b FROM bids GROUP BY window(ts, '10 minutes')",
        "a: bids.ts window_start 10, b: bids.ts window_time 1ms",
    ),
    (f"SELECT window_start AS a, window_end AS b, ts AS c FROM {SESSION}", "b: bids.ts session_end 0"),
    (f"SELECT window_start AS a, ts AS c FROM {SESSION}", "c: bids.ts time 5"),
    (
        (
            "SELECT CAST(ts AS DATE) AS a, DATE_TRUNC('hour', ts) AS b, ts + INTERVAL '1' HOUR AS c, "
            "ts - INTERVAL '1' DAY AS d FROM bids"
        ),
        "a: bids.ts other 1440, b: bids.ts other 60, c: bids.ts other -60, d: bids.ts other 1440",
    ),
    (
        (
            "SELECT timestamp_millis(ms) AS a, TIMESTAMP_MILLIS(ms) - INTERVAL '1' DAY AS b, TIMESTAMP_SECONDS(ms) "
            "AS c, ms AS d FROM ticks WHERE k > 'a'"
        ),
        "a: ticks.TIMESTAMP_MILLIS(ms) time 0, b: ticks.TIMESTAMP_MILLIS(ms) other 1440",
    ),
    (
        (
            "SELECT window_end AS a, COUNT(*) AS b FROM TABLE(HOP((SELECT *, TIMESTAMP_MILLIS(ms) AS at FROM ticks), "
            "DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
        ),
        "a: ticks.TIMESTAMP_MILLIS(ms) window_end 0",
    ),
    ("SELECT ts - INTERVAL '1' MONTH AS a, COALESCE(ts, CAST(local AS TIMESTAMP)) AS b FROM bids", ""),
    (
        f"SELECT window_start AS a, window_end AS b, MAX(ts) AS c FROM {HOP} GROUP BY window_start, window_end",
        "a: bids.ts window_start 20, b: bids.ts window_end 0",
    ),
    (
        f"SELECT window_start AS a, window_end AS b, COUNT(*) AS n FROM {CUMULATE} GROUP BY window_start, window_end",
        "a: bids.ts window_start 20, b: bids.ts window_end 0",
    ),
    (
        f"SELECT window_start AS a, window_end AS b, ts AS c FROM {TUMBLE} QUALIFY {NUMBER} <= 3",
        "a: bids.ts window_start 10, b: bids.ts window_end 0",
    ),
    (
        f"SELECT a.window_start AS a, b.window_end AS b, a.ts AS c FROM {TUMBLE} a JOIN {ASKED} b ON {EDGES}",
        "a: asks.at bids.ts window_start 10, b: asks.at bids.ts window_end 0",
    ),
    (
        f"SELECT a.window_start AS a, b.window_end AS b FROM {TUMBLE} a LEFT JOIN {ASKED} b ON {EDGES}",
        "a: asks.at bids.ts window_start 10",
    ),
    (
        (
            f"SELECT COALESCE(b.window_end, a.window_end) AS a, a.window_end AS b, "
            f"COALESCE(a.window_end, b.window_start) AS c FROM {TUMBLE} a FULL JOIN {ASKED} b ON {EDGES}"
        ),
        "a: asks.at bids.ts window_end 0",
    ),
    (
        f"SELECT a.window_start AS a, a.ts AS b FROM {TUMBLE} a LEFT SEMI JOIN {ASKED} b ON {EDGES}",
        "a: asks.at bids.ts window_start 10",
    ),
    ("SELECT a.ts AS a FROM bids a JOIN asks b ON a.k = b.k", ""),
    (
        (
            "SELECT a.ts AS a, b.at AS b FROM bids a JOIN asks b ON a.k = b.k "
            "AND b.at BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '10' MINUTE"
        ),
        "a: asks.at bids.ts other 15, b: asks.at bids.ts other 15",
    ),
    (
        (
            "SELECT a.ts AS a, b.at AS b FROM bids a LEFT JOIN asks b ON a.k = b.k "
            "AND a.ts >= b.at - INTERVAL '5' MINUTE AND b.at > a.ts + INTERVAL '1' MINUTE"
        ),
        "a: asks.at bids.ts other 5",
    ),
    (
        "SELECT a.ts AS a, b.at AS b FROM bids a JOIN asks b ON a.k = b.k AND b.at >= a.ts - INTERVAL '5' MINUTE",
        "b: asks.at bids.ts other 5",
    ),
    (
        "SELECT a FROM (SELECT ts AS a FROM bids UNION ALL SELECT at - INTERVAL '1' MINUTE FROM asks)",
        "a: asks.at bids.ts other 1",
    ),
    ("SELECT a FROM (SELECT ts AS a FROM bids UNION ALL SELECT TIMESTAMP '2024-01-01 00:00:00' FROM asks)", ""),
    (
        (
            "SELECT window_start AS a FROM TABLE(TUMBLE((SELECT window_time AS t FROM "
            f"{TUMBLE}), DESCRIPTOR(t), INTERVAL '1' HOUR))"
        ),
        "a: bids.ts window_start 60+1ms",
    ),
    (
        (
            "SELECT k AS a, b, c, d FROM quotes MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.ts AS b, "
            "MATCH_ROWTIME() AS c, MAX(A.ts) AS d PATTERN (A B) WITHIN INTERVAL '10' MINUTE)"
        ),
        "b: quotes.ts time 10, c: quotes.ts time 10",
    ),
    (
        (
            "SELECT ts AS a FROM quotes MATCH_RECOGNIZE (ORDER BY ts ALL ROWS PER MATCH PATTERN (A) "
            "WITHIN INTERVAL '1' HOUR)"
        ),
        "a: quotes.ts time 60",
    ),
    ("SELECT b FROM quotes MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS b PATTERN (A))", ""),
    (
        "SELECT timestamp_millis( ms ) AS a, (TIMESTAMP_MILLIS(t.MS)) AS b, ms AS c FROM beats t",
        f"a: {MILLIS}, b: {MILLIS}",
    ),
    (
        (
            "SELECT window_time(y) AS a, y.end AS b FROM (SELECT w AS y FROM (SELECT window AS w FROM bids "
            "GROUP BY window(ts, '10 minutes')))"
        ),
        "a: bids.ts window_time 1ms, b: bids.ts window_end 0",
    ),
    ("SELECT TIMESTAMP_MILLIS(ms + 1) AS a, TIMESTAMP_MICROS(ms) AS b, TIMESTAMP_MILLIS(id) AS c FROM beats", ""),
    ("SELECT ts AS a, TIMESTAMP_MILLIS(ms) AS b FROM beats", f"a: beats.ts time 0, b: {MILLIS}"),
    (
        "WITH w AS (SELECT x.ms AS n FROM (SELECT * FROM beats WHERE id > 1) x) SELECT TIMESTAMP_MILLIS(n) AS a FROM w",
        f"a: {MILLIS}",
    ),
    (
        "SELECT TIMESTAMP_MILLIS(n) AS a FROM (SELECT ms AS n, zone, COUNT(*) FROM beats GROUP BY ms, zone)",
        f"a: {MILLIS}",
    ),
    ("SELECT TIMESTAMP_MILLIS(n) AS a FROM (SELECT id, MAX(ms) AS n FROM beats GROUP BY id)", ""),
    ("SELECT TIMESTAMP_MILLIS(a.ms) AS a FROM beats a JOIN beats b ON a.id = b.id", ""),
    (
        "SELECT window.end AS a FROM beats GROUP BY window(TIMESTAMP_MILLIS(ms), '10 minutes')",
        "a: beats.TIMESTAMP_MILLIS(ms) window_end 0",
    ),
    (
        "SELECT coalesce(ts, CAST(d AS timestamp)) AS a, ts AS b FROM clocks",
        "a: clocks.COALESCE(ts, CAST(d AS TIMESTAMP)) time 0, b: clocks.ts time 0",
    ),
    ("SELECT COALESCE(a.ts, CAST(b.d AS TIMESTAMP)) AS a FROM clocks a CROSS JOIN clocks b", ""),
    (
        (
            "SELECT FROM_UTC_TIMESTAMP(ts, 'America/New_York') AS a, TO_UTC_TIMESTAMP(ts, 'America/New_York') AS b "
            "FROM bids"
        ),
        "a: bids.ts other 300, b: bids.ts other -240",
    ),
    (
        (
            "SELECT CONVERT_TIMEZONE('America/New_York', local) AS a, CONVERT_TIMEZONE('UTC', '+05:30', local) AS b, "
            "CONVERT_TIMEZONE('America/New_York', '-08:00', local) AS c FROM bids"
        ),
        "a: bids.local other 300, b: bids.local other -330, c: bids.local other 240",
    ),
    (
        "SELECT CONVERT_TIMEZONE('UTC', 'Europe/Berlin', CAST(ts AS TIMESTAMP_NTZ)) AS a FROM bids",
        "a: bids.ts other -54+32000ms",
    ),
    ("SELECT FROM_UTC_TIMESTAMP(ts, 'Nowhere') AS a, FROM_UTC_TIMESTAMP(ts, k) AS b FROM bids", ""),
]


@pytest.mark.parametrize(("sql", "expected"), CASES)
def test_columns_follow_times_of_tables(sql: str, expected: str, tmp_path: Path) -> None:
    """Each column is derived from the right event times, with the right kind and slack."""
    (tmp_path / "job.yaml").write_text(JOB + f"sinks: {json.dumps({'result': {'mode': 'retract', 'sql': sql}})}\n")
    query = logical(load(tmp_path / "job.yaml"), "result")
    for each in PASSES:
        query = each(query)
    found = event_times(query.root)
    told = []
    for name in sorted(columns(query.root)):
        if (time := found.get(name)) is not None:
            origins = " ".join(f"{each.table}.{each.column}" for each in sorted(time.origins))
            minutes, rest = divmod(-(-time.slack // 1_000), MINUTE)
            slack = f"{minutes}+{rest}ms" if minutes and rest else f"{rest}ms" if rest else str(minutes)
            told.append(f"{name}: {origins} {time.kind} {slack}")
    assert ", ".join(told) == expected
