"""Scalar subqueries with an unknown number of rows: a second row is an error and never gives a wrong value."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.plan.errors import PlanError
from tests.seeds import drawn, seeds
from tests.trying import Change, folded

TABLES = {
    "orders": {"mode": "append", "columns": {"id": "BIGINT NOT NULL", "v": "BIGINT"}},
    "rates": {"mode": "retract", "exact": True, "columns": {"name": "STRING", "rate": "BIGINT"}},
}
SQL = "SELECT o.id, o.v * (SELECT rate FROM rates WHERE name = 'eur') AS paid FROM orders o"
IN_DUCKDB = "SELECT o.id, o.v * (SELECT rate FROM rates WHERE name = 'eur') FROM orders o ORDER BY 1"


def order(number: int, v: int) -> Change:
    """Return the insertion of an order."""
    return {"table": "orders", "op": "+I", "row": {"id": number, "v": v}}


def rate(op: str, name: str, rate: int | None) -> Change:
    """Return a change of the rates."""
    return {"table": "rates", "op": op, "row": {"name": name, "rate": rate}}


def paid(folder: Path, changes: list[Change], batch_rows: int = 1) -> list[tuple[int, int | None]]:
    """Return the orders with the paid amounts."""
    return sorted((row["id"], row["paid"]) for row in folded(folder, SQL, TABLES, changes, batch_rows=batch_rows))


def test_the_value_follows_the_one_row(tmp_path: Path) -> None:
    """Without a row the value is NULL, and a replaced row changes all results."""
    changes = [order(1, 2), rate("+I", "usd", 7)]
    assert paid(tmp_path, changes) == [(1, None)]
    changes += [rate("+I", "eur", 10)]
    assert paid(tmp_path, changes) == [(1, 20)]
    changes += [rate("-U", "eur", 10), rate("+U", "eur", 11), order(2, 1)]
    assert paid(tmp_path, changes) == [(1, 22), (2, 11)]
    changes += [rate("-D", "eur", 11)]
    assert paid(tmp_path, changes) == [(1, None), (2, None)]


def test_a_second_row_fails_the_batch(tmp_path: Path) -> None:
    """A second row is an error with the subquery, its number of rows and the remedy, even if both rows are equal."""
    for second in (11, 10):
        with pytest.raises(ExpressionError) as raised:
            paid(tmp_path, [order(1, 2), rate("+I", "eur", 10), rate("+I", "eur", second)])
        text = str(raised.value)
        assert "(SELECT rate FROM rates WHERE name = 'eur') returned 2 rows, but only one is allowed" in text
        assert text.endswith("add a condition, or an aggregate such as MAX.")


def test_rows_are_counted_after_a_batch(tmp_path: Path) -> None:
    """Rows are counted at the end of a batch, which may insert the new row before it deletes the old one."""
    changes = [order(1, 2), rate("+I", "eur", 10), rate("+I", "eur", 11), rate("-D", "eur", 10)]
    assert paid(tmp_path, changes, batch_rows=4) == [(1, 22)]


def test_a_correlated_subquery_is_refused(tmp_path: Path) -> None:
    """A correlated subquery that may return several rows is refused when the query is planned."""
    with pytest.raises(PlanError, match="this subquery may return more than one row"):
        folded(tmp_path, "SELECT (SELECT rate FROM rates WHERE rate = o.v) AS x FROM orders o", TABLES, [])


def test_it_is_what_duckdb_says(tmp_path: Path) -> None:
    """For random changes the results are DuckDB's, and a second row is an error."""
    for chosen in drawn("single row", seeds(60)):
        _compare(chosen, tmp_path)


def _compare(chosen: Random, folder: Path) -> None:
    orders: list[tuple[int, int]] = []
    rates: list[tuple[str, int | None]] = []
    changes: list[Change] = []
    for number in range(12):
        before = len(changes), [*orders], [*rates]
        if chosen.random() < 0.3:
            orders.append((number, chosen.randrange(3)))
            changes.append(order(*orders[-1]))
        elif rates and chosen.random() < 0.6:
            gone = rates.pop(chosen.randrange(len(rates)))
            changes.append(rate("-D", *gone))
        else:
            rates.append((chosen.choice(["eur", "usd"]), chosen.choice([None, 2, 3])))
            changes.append(rate("+I", *rates[-1]))
        if sum(name == "eur" for name, _ in rates) > 1:
            with pytest.raises(ExpressionError):
                paid(folder, changes)
            count, orders, rates = before
            changes = changes[:count]
            break
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE orders (id BIGINT, v BIGINT); CREATE TABLE rates (name TEXT, rate BIGINT)")
        for table, rows in (("orders", orders), ("rates", rates)):
            if rows:
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        assert paid(folder, changes) == connection.execute(IN_DUCKDB).fetchall(), changes
