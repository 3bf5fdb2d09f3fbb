"""PostgreSQL, Debezium, Rowkind and a JDBC sink connector: result tables equal to views with the same queries.

The tests share one pipeline, which has followed the tutorial. Each test changes rows, and waits until the
result tables are equal to the views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from rowkind.service.dev.broker import Broker
from tests.cdc.pipeline import SECONDS, Pipeline, pipeline
from tests.cdc.tutorial import follow
from tests.run.process import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) AS i)"
"""A value of 32,000 characters, which PostgreSQL stores as TOAST."""

CHANGES: Mapping[str, tuple[str, ...]] = {
    "the tutorial": (),
    "inserts": (
        """INSERT INTO orders (id, customer_id, amount, placed)
            SELECT i, 1 + i % 4, 10 * i, '2026-01-05Z' FROM generate_series(1, 6) AS i""",
        "INSERT INTO customers (id, name, country) VALUES (5, 'Edsger', 'NL')",
        "INSERT INTO orders VALUES (7, 5, 1.00, '2026-01-06Z', NULL), (8, 1, 100.00, '2026-01-06Z', 'urgent')",
    ),
    "updates": (
        "UPDATE orders SET amount = amount + 10 WHERE id IN (2, 5)",
        "UPDATE customers SET country = 'FR', name = 'Ada L.' WHERE id = 1",
    ),
    "deletes": (
        "DELETE FROM orders WHERE id = 4",
        "DELETE FROM customers WHERE id = 3",
        "DELETE FROM types WHERE id = 2",
    ),
    "updates of primary keys": (
        "UPDATE orders SET id = 101 WHERE id = 1",
        "UPDATE customers SET id = 102 WHERE id = 2",
        "UPDATE orders SET customer_id = 102 WHERE customer_id = 2",
        "UPDATE types SET id = 11 WHERE id = 1",
    ),
    "several changes of a row in a transaction": (
        """BEGIN; DELETE FROM orders WHERE id = 7; INSERT INTO orders VALUES (7, 5, 3, '2026-01-07Z');
            UPDATE orders SET id = 70 WHERE id = 7; UPDATE orders SET id = 7 WHERE id = 70; COMMIT""",
    ),
    "a large value": (f"UPDATE orders SET note = {LARGE} WHERE id = 8",),
    "an update that leaves a large value unchanged": ("UPDATE orders SET amount = 101 WHERE id = 8",),
    "an update that leaves a large value unchanged which the job does not read": (
        f"UPDATE customers SET photo = {LARGE}::bytea WHERE id = 5",
        "UPDATE customers SET name = 'Edsger D.' WHERE id = 5",
    ),
    "unusual values": (
        "INSERT INTO types (id, a_text, a_bytea, an_hstore) VALUES (3, '', '', 'a => b, c => \"\"')",
        """INSERT INTO types (id, a_json, a_jsonb, an_int_array, a_text_array, a_text)
            VALUES (4, '"\\u00e9"', 'null', '{}', '{}', E'a\\nb\\\\"')""",
        "INSERT INTO types (id, a_free_numeric, an_interval) VALUES (5, 1e20, '-1 day 25:00'), (6, -0.0001, '-1.5 s')",
        "INSERT INTO types (id, a_bit, a_bits, a_varbit) VALUES (7, '0', '000000000001', '00000001')",
        "INSERT INTO types (id, an_int4range, a_daterange, a_char, a_point) VALUES (8, 'empty', '(,)', '', '(1,-2)')",
        "INSERT INTO types (id, a_date, a_time, a_timetz) VALUES (9, '20000-01-01', '00:00', '23:30-05')",
    ),
    "a new column": (
        "ALTER TABLE orders ADD COLUMN coupon text NOT NULL DEFAULT 'none'",
        "INSERT INTO orders VALUES (9, 5, 5, '2026-01-08Z', NULL, 'shop', 'ten')",
        "UPDATE orders SET amount = 6 WHERE id = 8",
    ),
    "a TRUNCATE": ("TRUNCATE orders", "INSERT INTO orders VALUES (10, 1, 1, '2026-01-09Z'), (11, 5, 2, '2026-01-09Z')"),
}


@pytest.fixture(scope="module")
def shop(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The running example, after all steps of the tutorial. Each step has shown what the page shows."""
    with pipeline(broker, tmp_path_factory.mktemp("cdc")) as running:
        follow(running)
        yield running


@pytest.mark.parametrize("change", CHANGES)
def test_results_follow(change: str, shop: Pipeline) -> None:
    """After each kind of change the result tables become equal to the views, without a dead letter."""
    shop.change(*CHANGES[change])
    shop.until_equal()
    assert shop.rowkind("dead-letters", "list") == ""


def test_the_sink_connector_creates_columns_of_fitting_types(shop: Pipeline) -> None:
    """DECIMAL and TIMESTAMP are numbers and times in PostgreSQL, too."""
    types = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'results.order_details'::regclass"
    )
    found = shop.postgres.rows(f"{types} AND attname IN ('id', 'amount', 'placed') ORDER BY attnum")
    assert found == ["bigint", "numeric(10,2)", "timestamp(6) without time zone"]


def test_a_second_snapshot_changes_only_what_differs(shop: Pipeline) -> None:
    """A connector that has lost its offsets and its slot reads all rows again, and finds what changed meanwhile."""
    shop.connector("PUT", None, "source/stop")
    shop.connector("DELETE", None, "source/offsets")
    dropped = "SELECT pg_drop_replication_slot('debezium')"
    until(lambda: bool(shop.postgres.rows(dropped)), "an end of the replication slot", shop.said)
    shop.change("UPDATE orders SET amount = 50 WHERE id = 10", "UPDATE types SET a_text = 'again' WHERE id = 11")
    shop.connector("PUT", None, "source/resume")
    shop.until_equal()
    shop.change("DELETE FROM orders WHERE id = 11")
    shop.until_equal()
    assert shop.rowkind("dead-letters", "list") == ""


def test_an_unknown_large_value_is_a_dead_letter_until_it_is_sent_again(shop: Pipeline) -> None:
    """Without REPLICA IDENTITY FULL, the update of another column does not have the unchanged value."""
    shop.change(
        "ALTER TABLE orders REPLICA IDENTITY DEFAULT",
        f"UPDATE orders SET note = {LARGE} WHERE id = 10",
        "UPDATE orders SET amount = 7 WHERE id = 10",
    )
    until(lambda: "column note" in shop.rowkind("dead-letters", "list"), "a dead letter", shop.said, SECONDS)
    shop.change("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET amount = 8 WHERE id = 10")
    shop.until_equal()
