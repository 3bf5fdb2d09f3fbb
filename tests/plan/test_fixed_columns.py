"""The columns of a result that are determined by other columns, permanently."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.plan.phases import PASSES
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.traits.fixed_columns import fixed_columns
from tests.plan.cases import Case

LABELS = "(SELECT item, COALESCE(item, '?') AS label FROM sales) l"
WINDOWS = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' HOUR))"
TOP = "(SELECT shop, number, item, RANK() OVER (PARTITION BY item ORDER BY paid) AS n FROM sales)"
SALES = "s.shop, s.number, s.item"


@pytest.mark.parametrize(
    ("sql", "key", "expected"),
    [
        ("SELECT shop, number, item, paid FROM sales", "shop number", "shop number item paid"),
        ("SELECT shop, number, item, paid FROM sales WHERE paid > 1", "shop number", "shop number item paid"),
        ("SELECT shop, number, item, paid FROM sales", "shop item", "shop item"),
        ("SELECT order_id, status FROM orders", "order_id", "order_id"),
        ("SELECT customer_id, name FROM customers", "customer_id", "customer_id"),
        ("SELECT page, day FROM clicks", "page", "page"),
        (
            "SELECT order_id, order_id + 1 AS next, amount + 1 AS more, 7 AS n FROM orders",
            "order_id",
            "order_id next n",
        ),
        ("SELECT quantity, CAST(quantity AS STRING) AS text, quantity + 1 AS more FROM moves", "quantity", "quantity"),
        (
            f"SELECT {SALES}, g.customer_id, g.plan FROM sales s JOIN signups g ON s.customer_id = g.customer_id",
            "shop number",
            "shop number item customer_id plan",
        ),
        (
            f"SELECT {SALES}, c.customer_id, c.name FROM sales s JOIN customers c ON s.customer_id = c.customer_id",
            "shop number",
            "shop number item customer_id",
        ),
        (
            f"SELECT {SALES}, g.customer_id, g.plan FROM sales s JOIN signups g ON s.customer_id + 1 = g.customer_id",
            "shop number",
            "shop number item customer_id plan",
        ),
        (
            f"SELECT {SALES}, g.customer_id, g.plan FROM sales s LEFT JOIN signups g ON s.customer_id = g.customer_id",
            "shop number",
            "shop number item",
        ),
        (
            f"SELECT {SALES}, g.customer_id, g.plan FROM signups g LEFT JOIN sales s ON s.customer_id = g.customer_id",
            "shop number",
            "shop number item",
        ),
        (
            f"SELECT {SALES}, g.customer_id, g.plan FROM signups g FULL JOIN sales s ON s.customer_id = g.customer_id",
            "shop number customer_id",
            "shop number customer_id item plan",
        ),
        (
            f"SELECT l.item, l.label, c.name FROM customers c JOIN {LABELS} ON l.item = c.name",
            "item",
            "item label name",
        ),
        (f"SELECT l.item, l.label, c.name FROM customers c LEFT JOIN {LABELS} ON l.item = c.name", "item", "item"),
        ("SELECT s.number, m.quantity FROM sales s JOIN moves m ON s.number = m.quantity", "number", "number quantity"),
        ("SELECT s.number, m.quantity FROM sales s JOIN moves m ON s.number = m.quantity", "quantity", "quantity"),
        (
            "SELECT s.number, m.quantity FROM sales s JOIN moves m ON s.number = m.quantity AND s.number = m.shop",
            "quantity",
            "quantity",
        ),
        (
            "SELECT s.number, m.shop FROM sales s JOIN moves m ON s.number = m.quantity AND s.number = m.shop",
            "shop",
            "shop number",
        ),
        (
            "SELECT shop, number, item, COUNT(*) AS n FROM sales GROUP BY shop, number, item",
            "shop number",
            "shop number item",
        ),
        ("SELECT item, MAX(paid) AS most FROM sales GROUP BY item", "item", "item"),
        (
            f"SELECT item, window_start, window_end FROM {WINDOWS} GROUP BY item, window_start, window_end",
            "window_end",
            "window_end window_start",
        ),
        (
            f"SELECT * FROM {TOP} WHERE n < 3",
            "shop number",
            "shop number item",
        ),
        (
            "SELECT shop, number, item FROM sales UNION ALL SELECT shop, number, item FROM sales",
            "shop number",
            "shop number",
        ),
    ],
)
def test_what_a_key_fixes(sql: str, key: str, expected: str, tmp_path: Path) -> None:
    """All rows that ever have the same key, deleted ones included, are equal in these columns of the result."""
    query = logical(Case(Path("case"), "A query.\nsink: retract", sql, "").job(tmp_path), "result")
    for each in PASSES:
        query = each(query)
    assert fixed_columns(query.root, set(key.split())) == set(expected.split())
