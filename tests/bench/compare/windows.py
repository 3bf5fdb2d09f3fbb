"""Event-time windows over payments and orders, interval joins and OVER, in SQL that both systems accept.

There is one row per millisecond, out of order by up to a second, and the payments are for a thousand items. The last
queries are Nexmark's q5, q7 and q8 over these tables; q11 is `session`.
"""

from __future__ import annotations

from dataclasses import replace

from tests.bench.compare.queries import Query

_ITEM = "MOD(order_id, CAST(1000 AS BIGINT))"
_SUMS = "COUNT(*) AS n, SUM(paid) AS s, MAX(paid) AS mx"
_OF_SUMS = {
    "item": "BIGINT NOT NULL",
    "window_end": "TIMESTAMP(3) NOT NULL",
    "n": "BIGINT NOT NULL",
    "s": "DOUBLE",
    "mx": "DOUBLE",
}
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_HOP = "TABLE(HOP(TABLE payments, DESCRIPTOR(ts), INTERVAL '{}' SECOND, INTERVAL '{}' SECOND))"
_COUNTS = (
    f"SELECT {_ITEM} AS item, window_start AS begins, window_end AS ends, COUNT(*) AS n FROM {_HOP.format(2, 10)} "
    f"GROUP BY {_ITEM}, window_start, window_end"
)

_NEAR = (
    "SELECT p.payment_id, o.customer_id, p.ts FROM payments AS p JOIN orders AS o ON p.order_id = o.order_id "
    "AND p.ts BETWEEN o.ts - INTERVAL '1' MINUTE AND o.ts + INTERVAL '1' MINUTE"
)
_SLIDING = (
    "SELECT payment_id, SUM(paid) OVER w AS s, COUNT(*) OVER w AS n, ts FROM payments "
    "WINDOW w AS (PARTITION BY {} ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW)"
)


def _in_duckdb(slide: int, size: int) -> str:
    """Return the payments in DuckDB, each once per window."""
    first = f"TIME_BUCKET(INTERVAL '{slide} seconds', ts)"
    begins = f"[{first} - back * INTERVAL '{slide} seconds' FOR back IN RANGE({size // slide})]"
    inner = f"SELECT *, order_id % 1000 AS item, UNNEST({begins}) AS begins FROM payments"
    return f"(SELECT *, begins + INTERVAL '{size} seconds' AS window_end FROM ({inner}))"


def _windowed(
    name: str,
    sql: str,
    columns: dict[str, str],
    key: tuple[str, ...],
    oracle: str,
    *,
    tables: tuple[str, ...] = ("payments",),
) -> Query:
    """Return a query with final results; its last TIMESTAMP column is the end of a window."""
    closes = [column for column, type_ in columns.items() if type_.startswith("TIMESTAMP")][-1]
    return Query(name, sql, tables, columns, key, appended=True, closes=closes, oracle=oracle, emit="final")


def _summed(name: str, windows: str, slide: int, size: int) -> Query:
    return _windowed(
        name,
        f"SELECT {_ITEM} AS item, window_end, {_SUMS} FROM {windows} GROUP BY {_ITEM}, window_start, window_end",
        _OF_SUMS,
        ("item", "window_end"),
        f"SELECT item, window_end, {_SUMS} FROM {_in_duckdb(slide, size)} GROUP BY ALL",
    )


WINDOWS = (
    _summed("tumble", _TUMBLE.format("payments"), 10, 10),
    _summed("hop of 60 panes", _HOP.format(1, 60), 1, 60),
    _windowed(
        "session",
        f"SELECT {_ITEM} AS item, SESSION_START(ts, INTERVAL '3' SECOND) AS begins, "
        f"SESSION_END(ts, INTERVAL '3' SECOND) AS ends, COUNT(*) AS n FROM payments "
        f"GROUP BY {_ITEM}, SESSION(ts, INTERVAL '3' SECOND)",
        {
            "item": "BIGINT NOT NULL",
            "begins": "TIMESTAMP(3) NOT NULL",
            "ends": "TIMESTAMP(3) NOT NULL",
            "n": "BIGINT NOT NULL",
        },
        ("item", "begins"),
        """
        WITH begun AS (
          SELECT *, COALESCE(ts - LAG(ts) OVER (PARTITION BY item ORDER BY ts) > INTERVAL '3 seconds', TRUE) AS new
          FROM (SELECT *, order_id % 1000 AS item FROM payments)
        ), numbered AS (SELECT *, SUM(new::INT) OVER (PARTITION BY item ORDER BY ts) AS number FROM begun)
        SELECT item, MIN(ts) AS begins, MAX(ts) + INTERVAL '3 seconds' AS ends, COUNT(*) AS n
        FROM numbered GROUP BY item, number
        """,
    ),
    _windowed(
        "q5, hot items",
        f"SELECT c.item, c.ends, c.n FROM ({_COUNTS}) AS c JOIN (SELECT MAX(n) AS most, begins, ends FROM ({_COUNTS}) "
        f"AS each_item GROUP BY begins, ends) AS m ON c.begins = m.begins AND c.ends = m.ends AND c.n >= m.most",
        {"item": "BIGINT NOT NULL", "ends": "TIMESTAMP(3) NOT NULL", "n": "BIGINT NOT NULL"},
        ("item", "ends"),
        f"SELECT item, window_end AS ends, COUNT(*) AS n FROM {_in_duckdb(2, 10)} GROUP BY item, window_end "
        "QUALIFY n = MAX(n) OVER (PARTITION BY window_end)",
    ),
    replace(
        # The join is not a window: its rows are updated as payments arrive.
        _windowed(
            "q7, highest bid",
            "SELECT p.payment_id, m.ends, p.order_id, p.paid FROM payments AS p JOIN (SELECT MAX(paid) AS most, "
            f"window_end AS ends FROM {_TUMBLE.format('payments')} GROUP BY window_start, window_end) AS m "
            "ON p.paid = m.most WHERE p.ts BETWEEN m.ends - INTERVAL '10' SECOND AND m.ends",
            {
                "payment_id": "BIGINT NOT NULL",
                "ends": "TIMESTAMP(3) NOT NULL",
                "order_id": "BIGINT NOT NULL",
                "paid": "DOUBLE",
            },
            ("payment_id", "ends"),
            f"SELECT payment_id, window_end AS ends, order_id, paid FROM {_in_duckdb(10, 10)} "
            "QUALIFY paid = MAX(paid) OVER (PARTITION BY window_end)",
        ),
        emit="",
    ),
    _windowed(
        "q8, new users",
        f"SELECT o.order_id, o.customer_id, o.ends FROM (SELECT order_id, customer_id, window_start AS begins, "
        f"window_end AS ends FROM {_TUMBLE.format('orders')} GROUP BY order_id, customer_id, window_start, window_end) "
        f"AS o JOIN (SELECT order_id, window_start AS begins, window_end AS ends FROM {_TUMBLE.format('payments')} "
        "GROUP BY order_id, window_start, window_end) AS p "
        "ON o.order_id = p.order_id AND o.begins = p.begins AND o.ends = p.ends",
        {"order_id": "BIGINT NOT NULL", "customer_id": "BIGINT NOT NULL", "ends": "TIMESTAMP(3) NOT NULL"},
        ("order_id", "ends"),
        "SELECT DISTINCT o.order_id, o.customer_id, TIME_BUCKET(INTERVAL '10 seconds', o.ts) + INTERVAL '10 seconds' "
        "AS ends FROM orders AS o JOIN payments AS p ON o.order_id = p.order_id "
        "AND TIME_BUCKET(INTERVAL '10 seconds', o.ts) = TIME_BUCKET(INTERVAL '10 seconds', p.ts)",
        tables=("orders", "payments"),
    ),
    replace(
        _windowed(
            "interval join",
            _NEAR,
            {"payment_id": "BIGINT NOT NULL", "customer_id": "BIGINT NOT NULL", "ts": "TIMESTAMP(3) NOT NULL"},
            ("payment_id",),
            _NEAR,
            tables=("orders", "payments"),
        ),
        emit="",
    ),
    _windowed(
        "over 10 s",
        _SLIDING.format(_ITEM),
        {"payment_id": "BIGINT NOT NULL", "s": "DOUBLE", "n": "BIGINT NOT NULL", "ts": "TIMESTAMP(3) NOT NULL"},
        ("payment_id",),
        _SLIDING.format("order_id % 1000"),
    ),
)
