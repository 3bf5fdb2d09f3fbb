"""The answers of `rowkind why` for each kind of step, over changes in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.physical.node import PhysicalSink
from rowkind.service.why.answer import RowExplanation
from rowkind.service.why.wanted import WantedError
from tests.reproduced import reproduced
from tests.unit.why.explained import explained, named

ORDERS = {
    "mode": "retract",
    "primary_key": "id",
    "columns": {"id": "BIGINT NOT NULL", "customer": "STRING", "amount": "INT", "at": "TIMESTAMP"},
}
PAYMENTS = {
    "mode": "upsert",
    "primary_key": "pid",
    "columns": {"pid": "BIGINT NOT NULL", "id": "BIGINT", "paid": "INT"},
}
VISITS = {"mode": "append", "columns": {"customer": "STRING NOT NULL", "at": "TIMESTAMP NOT NULL"}}
TABLES = {"orders": ORDERS, "payments": PAYMENTS, "visits": VISITS}
KEYED = {"mode": "upsert", "key": "id"}
PAID = """
    SELECT o.id, p.paid FROM orders o
    JOIN (SELECT id, SUM(paid) AS paid FROM payments GROUP BY id) p ON p.id = o.id
"""
DEAREST = """
    SELECT id, amount FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount DESC) AS n FROM orders
    ) WHERE n <= 1
"""
FIRST = """
    SELECT customer, at FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY at) AS n FROM visits
    ) WHERE n = 1
"""
TUMBLED = """
    SELECT window_start, customer, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(at), INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, customer
"""


def order(id_: int, customer: str | None, amount: int, op: str = "+I", minute: int = 0) -> dict[str, Any]:
    """Return a change of an order."""
    row = {"id": id_, "customer": customer, "amount": amount, "at": f"2026-01-05T12:{minute:02}:00Z"}
    return {"table": "orders", "op": op, "row": row}


def payment(pid: int, id_: int | None, paid: int, op: str = "+U") -> dict[str, Any]:
    """Return a change of a payment."""
    return {"table": "payments", "op": op, "row": {"pid": pid, "id": id_, "paid": paid}}


def visit(customer: str, minute: int) -> dict[str, Any]:
    """Return a visit."""
    return {"table": "visits", "op": "+I", "row": {"customer": customer, "at": f"2026-01-05T12:{minute:02}:00Z"}}


CHANGES = [
    order(1, "Ada", 10),
    order(2, "Ada", 20, minute=1),
    order(3, "Bob", 30, minute=2),
    order(4, None, 40, minute=3),
    order(5, "Bob", 50, minute=4),
    payment(11, 1, 4),
    payment(12, 1, 6),
    payment(13, 3, 1),
    payment(14, None, 9),
    payment(13, 2, 7),
    order(5, "Bob", 50, "-D", minute=4),
    visit("Ada", 0),
    visit("Ada", 7),
    visit("Bob", 20),
]


def why(folder: Path, sql: str, key: str, sink: Mapping[str, Any] = KEYED) -> tuple[PhysicalSink, RowExplanation]:
    """Return the plan and the answer."""
    return explained(folder, TABLES, CHANGES, sql, key, sink)


PRESENT = {
    "filter": ("SELECT id, amount FROM orders WHERE amount > 15", "2", KEYED, {"orders": [2]}),
    "computed column": (
        "SELECT id, customer || '!' AS name FROM orders",
        "name=Bob!",
        KEYED,
        {"orders": [3]},
    ),
    "inner join": (
        "SELECT p.pid AS id, o.customer, p.paid FROM orders o JOIN payments p ON o.id = p.id",
        "12",
        KEYED,
        {"orders": [1], "payments": [7]},
    ),
    "key of a row that was replaced": (
        "SELECT p.pid AS id, o.customer, p.paid FROM orders o JOIN payments p ON o.id = p.id",
        "13",
        KEYED,
        {"orders": [2], "payments": [10]},
    ),
    "left join with a match": (
        "SELECT o.id, p.pid, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.id",
        "id=1 pid=11",
        {"mode": "retract"},
        {"orders": [1], "payments": [6]},
    ),
    "left join without a match": (
        "SELECT o.id, p.pid, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.id",
        "id=3",
        {"mode": "retract"},
        {"orders": [3]},
    ),
    "null-padded row by its NULL": (
        "SELECT o.id, p.pid, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.id",
        "pid=NULL id=3",
        {"mode": "retract"},
        {"orders": [3]},
    ),
    "full join": (
        "SELECT o.id, p.pid, p.paid FROM orders o FULL JOIN payments p ON o.id = p.id",
        "pid=14",
        {"mode": "retract"},
        {"payments": [9]},
    ),
    "aggregate": (
        "SELECT customer, COUNT(*) AS n, SUM(amount) AS amount FROM orders GROUP BY customer",
        "customer=Ada",
        {"mode": "retract"},
        {"orders": [1, 2]},
    ),
    "aggregate of no group": ("SELECT COUNT(*) AS n FROM orders", "n=4", {"mode": "retract"}, {"orders": [1, 2, 3, 4]}),
    "join of an aggregate": (
        PAID,
        "1",
        KEYED,
        {"orders": [1], "payments": [6, 7]},
    ),
    "rank": (
        DEAREST,
        "2",
        KEYED,
        {"orders": [2]},
    ),
    "deduplication": (
        FIRST,
        "customer=Ada",
        {"mode": "retract"},
        {"visits": [12]},
    ),
    "union": (
        "SELECT 'order' AS what, id FROM orders UNION ALL SELECT 'payment', id FROM payments",
        "what=payment id=1",
        {"mode": "retract"},
        {"payments": [6, 7]},
    ),
    "semi join": (
        "SELECT id, amount FROM orders WHERE id IN (SELECT id FROM payments)",
        "1",
        KEYED,
        {"orders": [1], "payments": [6, 7]},
    ),
    "anti join": (
        "SELECT id, amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.id = o.id)",
        "3",
        KEYED,
        {"orders": [3]},
    ),
    "window": (
        TUMBLED,
        "customer=Ada",
        {"mode": "retract"},
        {"visits": [12, 13]},
    ),
    "window function": (
        "SELECT id, SUM(amount) OVER (PARTITION BY customer ORDER BY at) AS total FROM orders",
        "2",
        KEYED,
        {"orders": [1, 2]},
    ),
}


@pytest.mark.parametrize("name", PRESENT)
def test_a_row_derives_from_the_named_source_rows(name: str, tmp_path: Path) -> None:
    """The answer names the source rows of a row, and these rows alone give the row."""
    sql, key, sink, sources = PRESENT[name]
    planned, found = why(tmp_path, sql, key, sink)
    assert found.rows
    assert not found.causes
    assert named(found) == sources
    assert reproduced(planned, found)


ABSENT = {
    "filter": (
        "SELECT id, amount FROM orders WHERE amount > 15",
        "1",
        KEYED,
        [("scan_orders", "filter")],
        "amount > 15",
    ),
    "no row": ("SELECT id FROM orders", "9", KEYED, [("scan_orders", "no row")], "never had a row with orders.id = 9"),
    "deleted": ("SELECT id FROM orders", "5", KEYED, [("scan_orders", "deleted")], "deleted by the -D at offset 11"),
    "changed": (
        "SELECT pid AS id, paid FROM payments",
        "id=13 paid=1",
        KEYED,
        [("scan_payments", "changed")],
        "was changed at offset 10",
    ),
    "inner join": (
        "SELECT o.id, p.pid FROM orders o JOIN payments p ON o.id = p.id",
        "id=3",
        {"mode": "retract"},
        [("scan_p", "changed"), ("join_1", "no match")],
        "has no row with p.id = 3",
    ),
    "join with a condition": (
        "SELECT o.id, p.pid FROM orders o JOIN payments p ON o.id = p.id AND p.paid > o.amount",
        "id=1",
        {"mode": "retract"},
        [("join_1", "no match")],
        "p.paid > o.amount is not true",
    ),
    "null key": (
        "SELECT p.pid AS id, o.amount FROM orders o JOIN payments p ON o.id = p.id",
        "14",
        KEYED,
        [("normalize_1", "null key")],
        "p.id is NULL, and NULL matches no row",
    ),
    "left join": (
        "SELECT o.id, p.pid FROM orders o LEFT JOIN payments p ON o.id = p.id",
        "id=9",
        {"mode": "retract"},
        [("scan_o", "no row")],
        "never had a row with o.id = 9",
    ),
    "having": (
        "SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer HAVING COUNT(*) > 1",
        "customer=Bob",
        {"mode": "retract"},
        [("aggregate_1", "filter")],
        "is not true for 1 row",
    ),
    "rank": (
        DEAREST,
        "1",
        KEYED,
        [("deduplicate_1", "rank")],
        "has number 2",
    ),
    "deduplication": (
        FIRST,
        "customer=Ada at=2026-01-05T12:07:00Z",
        {"mode": "retract"},
        [("deduplicate_1", "rank")],
        "has number 2",
    ),
    "union": (
        "SELECT 'order' AS what, id FROM orders UNION ALL SELECT 'payment', id FROM payments",
        "id=9",
        {"mode": "retract"},
        [("scan_input_1.orders", "no row"), ("scan_input_2.payments", "no row")],
        "payments has never had a row",
    ),
    "semi join": (
        "SELECT id, amount FROM orders WHERE id IN (SELECT id FROM payments WHERE paid > 100)",
        "1",
        KEYED,
        [("scan_", "filter"), ("semi_join_1", "no match")],
        "has no row with",
    ),
    "anti join": (
        "SELECT id, amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.id = o.id)",
        "1",
        KEYED,
        [("anti_join_1", "match")],
        "has a match with",
    ),
    "constant": (
        "SELECT 'order' AS what, id FROM orders",
        "what=invoice id=1",
        {"mode": "retract"},
        [("normalize_1", "value")],
        "the step has 1 row, but none with what = 'invoice'",
    ),
    "aggregate with another value": (
        "SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer",
        "customer=Ada n=3",
        {"mode": "retract"},
        [("aggregate_1", "value")],
        "the step has 1 row with orders.customer = 'Ada', but none with n = 3",
    ),
    "window": (
        TUMBLED,
        "customer=Eve",
        {"mode": "retract"},
        [("scan_visits", "no row")],
        "customer = 'Eve'",
    ),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_missing_row_is_left_out_by_the_named_step(name: str, tmp_path: Path) -> None:
    """The answer names the first step that leaves a row out, and the condition."""
    sql, key, sink, causes, text = ABSENT[name]
    _, found = why(tmp_path, sql, key, sink)
    assert not found.rows
    assert len(found.causes) == len(causes), found.causes
    for cause, (step, kind) in zip(found.causes, causes, strict=True):
        assert cause.step.startswith(step)
        assert cause.kind == kind
    assert any(text in cause.text for cause in found.causes), found.causes


@pytest.mark.parametrize(
    ("function", "condition", "key", "text"),
    [
        ("ROW_NUMBER", "n <= 1", "2", "has number 3 by derived_1.orders.customer, and only 1 is emitted"),
        ("RANK", "n <= 1", "2", "has number 2 by derived_1.orders.customer, and only 1 is emitted"),
        ("RANK", "n BETWEEN 2 AND 3", "3", "has number 4 by derived_1.orders.customer, and only 2 to 3 are emitted"),
        ("DENSE_RANK", "n <= 2", "3", "has number 3 by derived_1.orders.customer, and only 1 to 2 are emitted"),
        ("DENSE_RANK", "n >= 3", "2", "has number 2 by derived_1.orders.customer, and only 3 and above are emitted"),
    ],
)
def test_tied_rows_have_the_number_of_the_function(
    function: str, condition: str, key: str, text: str, tmp_path: Path
) -> None:
    """The order's customers are NULL, Ada, Ada and Bob."""
    sql = f"SELECT id FROM (SELECT id, {function}() OVER (ORDER BY customer) AS n FROM orders) WHERE {condition}"
    _, found = why(tmp_path, sql, key)
    (cause,) = found.causes
    assert cause.kind == "rank"
    assert text in cause.text


def test_only_rows_that_can_matter_are_kept(tmp_path: Path) -> None:
    """The condition on one side of a join becomes a condition on the other side."""
    _, found = why(tmp_path, "SELECT p.pid AS id, o.amount FROM orders o JOIN payments p ON o.id = p.id", "12")
    assert {read.table: (read.by, read.kept) for read in found.reads} == {
        "payments": (("p.pid = 12",), 1),
        "orders": (("o.id = 1",), 1),
    }


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("x", 'id: "x" is not BIGINT'),
        ("amonut=3", "has no column 'amonut'; did you mean amount?"),
        ("1 2", "'1' has no column, and sink o has the key (id)"),
        ("{", "the key is not JSON"),
        ("{}", "the key has no column"),
    ],
)
def test_a_key_that_the_sink_cannot_have_is_refused(key: str, message: str, tmp_path: Path) -> None:
    """The message says what is wrong, and which columns the key has."""
    with pytest.raises(WantedError) as raised:
        why(tmp_path, "SELECT id, amount FROM orders", key)
    assert message in str(raised.value)
    assert "The key of sink o: id BIGINT. Write id=…" in str(raised.value)
