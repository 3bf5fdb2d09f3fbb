"""The benchmark's queries, in SQL that both systems accept.

The left join is an exception. The key of an upsert topic must not be NULL, but orders without payments would have a
NULL there. Flink's query therefore has -1 in its place, and Rowkind writes a retract topic, which allows NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.bench.compare.tables import Table

_JOINED = "p.payment_id, o.order_id, o.customer_id, o.amount, p.paid, p.`method`"
_LEFT = "FROM orders o LEFT JOIN payments p ON p.order_id = o.order_id"
_BUCKETS = "SELECT MOD(order_id, CAST(50000 AS BIGINT)) AS bucket, payment_id, order_id, paid, `method` FROM payments"
_PAYMENT = {
    "payment_id": "BIGINT NOT NULL",
    "order_id": "BIGINT NOT NULL",
    "paid": "DOUBLE",
    "method": "STRING",
}
_PAYMENT_OF_ORDER = {
    "payment_id": "BIGINT NOT NULL",
    "order_id": "BIGINT NOT NULL",
    "customer_id": "BIGINT NOT NULL",
    "amount": "DOUBLE",
    "paid": "DOUBLE",
    "method": "STRING",
}


@dataclass(frozen=True)
class Query:
    """A query whose result is kept up to date in a topic.

    - `tables`: its source tables. `columns` and `key`: of its result; without a key the result is insert-only.
    - `flink_sql`: the query for Flink, if it differs. `mode`: of Rowkind's sink; Flink's is upsert if there is a key.
    - `compared`: the columns by which results are compared if ties of NULLs in ranks leave others undetermined.
    - `event_time`: whether the payments' time is an event time, which Flink requires to be declared.
    - `appended`: only for append topics, because the query depends on which row arrived last.
    - `closes`: for a query of windows, the column with the end of each. `oracle`: the query for DuckDB, if it differs.
      `emit`: of Rowkind's sink; Flink emits windows once, when they close.
    """

    name: str
    sql: str
    tables: tuple[str, ...]
    columns: dict[str, str]
    key: tuple[str, ...]
    flink_sql: str = ""
    mode: Literal["upsert", "retract", "append"] = "upsert"
    compared: tuple[str, ...] = ()
    event_time: bool = False
    appended: bool = False
    closes: str = ""
    oracle: str = ""
    emit: Literal["", "final"] = ""

    def watermark(self, table: Table) -> str:
        """Return the watermark expression of a table; empty if the query uses no event time."""
        if self.closes:
            return f"ts - INTERVAL '{table.delay}' SECOND"
        return "ts" if self.event_time else ""


def _top(rows: str, partition: str, columns: str) -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY paid DESC) AS rn FROM ({rows})"
    return f"SELECT {columns} FROM ({numbered}) WHERE rn <= 3"


def _last(order: str) -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY {order} DESC) AS rn FROM payments"
    return f"SELECT order_id, payment_id, paid, `method` FROM ({numbered}) WHERE rn = 1"


QUERIES = (
    Query(
        "inner join",
        f"SELECT {_JOINED} FROM payments p JOIN orders o ON p.order_id = o.order_id",
        ("orders", "payments"),
        _PAYMENT_OF_ORDER,
        ("payment_id",),
    ),
    Query(
        "left join",
        f"SELECT {_JOINED} {_LEFT}",
        ("orders", "payments"),
        _PAYMENT_OF_ORDER,
        ("order_id", "payment_id"),
        flink_sql=f"SELECT COALESCE(p.payment_id, CAST(-1 AS BIGINT)) AS {_JOINED.removeprefix('p.')} {_LEFT}",
        mode="retract",
    ),
    Query(
        "top 3",
        _top(_BUCKETS, "bucket", "bucket, payment_id, order_id, paid, `method`"),
        ("payments",),
        {"bucket": "BIGINT NOT NULL", **_PAYMENT},
        ("payment_id",),
        compared=("bucket", "paid"),
    ),
    Query(
        "top 3 with number",
        _top(_BUCKETS, "bucket", "bucket, rn, payment_id, order_id, paid, `method`"),
        ("payments",),
        {"bucket": "BIGINT NOT NULL", "rn": "BIGINT NOT NULL", **_PAYMENT},
        ("bucket", "rn"),
        compared=("bucket", "rn", "paid"),
    ),
    Query(
        "keep last by arrival",
        _last("PROCTIME()"),
        ("payments",),
        {"order_id": "BIGINT NOT NULL", **_PAYMENT},
        ("order_id",),
        appended=True,
    ),
    Query(
        "keep last by time",
        _last("ts"),
        ("payments",),
        {"order_id": "BIGINT NOT NULL", **_PAYMENT},
        ("order_id",),
        event_time=True,
        appended=True,
    ),
    Query(
        "aggregate",
        "SELECT order_id, COUNT(*) AS n, SUM(paid) AS s, MAX(paid) AS mx FROM payments GROUP BY order_id",
        ("payments",),
        {"order_id": "BIGINT NOT NULL", "n": "BIGINT NOT NULL", "s": "DOUBLE", "mx": "DOUBLE"},
        ("order_id",),
    ),
    Query(
        "join, top 3",
        _top(
            f"SELECT {_JOINED} FROM payments p JOIN orders o ON p.order_id = o.order_id",
            "customer_id",
            "payment_id, order_id, customer_id, amount, paid, `method`",
        ),
        ("orders", "payments"),
        _PAYMENT_OF_ORDER,
        ("payment_id",),
        compared=("customer_id", "paid"),
    ),
)
