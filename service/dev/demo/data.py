"""Generate the demo's changing order book, change by change.

Orders are placed, amended, shipped and cancelled. Payments arrive late, before their order, or twice. Payments are also
corrected, booked to the wrong order and moved to the right one, or withdrawn. The seed determines everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

from rowkind.operators.changelog import RowKind

TableName = Literal["orders", "payments"]
Row = dict[str, Any]

_CUSTOMERS = ("Ada", "Blaise", "Carl", "Dorothea", "Emmy", "Felix", "Grace", "Henri", "Ida", "Johannes")
_METHODS = ("card", "cash", "transfer", "voucher")
_OPENED = datetime(2026, 1, 5, 8, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one table."""

    table: TableName
    kind: RowKind
    row: Row


def order_book(changes: int, seed: int) -> Iterator[Event]:
    """Yield at least `changes` changes of all four kinds to both tables; an update is a -U and a +U."""
    book = _OrderBook(random.Random(seed))  # noqa: S311 - the demo is reproducible, not secret
    count = 0
    while count < changes:
        for event in book.step():
            count += 1
            yield event


class _OrderBook:
    """The live rows of both tables; generates one business event at a time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._clock = _OPENED
        self._orders: dict[int, Row] = {}
        self._payments: dict[int, Row] = {}
        self._next_order = 1
        self._next_payment = 1
        self._unpaid: list[int] = []

    def step(self) -> list[Event]:
        self._clock += timedelta(milliseconds=self._rng.randint(1, 2500))
        (event,) = self._rng.choices(
            (self._place, self._pay, self._amend, self._move, self._correct, self._cancel, self._withdraw),
            weights=(34, 28, 18, 6, 5, 6, 3),
        )
        return event()

    def _place(self) -> list[Event]:
        order = {
            "order_id": self._next_order,
            "customer": self._rng.choice(_CUSTOMERS),
            "amount": self._money(500),
            "status": "new",
            "placed": self._clock,
        }
        self._orders[self._next_order] = order
        self._unpaid.append(self._next_order)
        self._next_order += 1
        return [Event("orders", RowKind.INSERT, order)]

    def _pay(self) -> list[Event]:
        # Mostly an unpaid order; sometimes an order not placed yet, or none at all (NULL).
        dice = self._rng.random()
        order_id: int | None
        if dice < 0.85 and self._unpaid:
            order_id = self._unpaid.pop(self._rng.randrange(len(self._unpaid)))
        elif dice < 0.95:
            order_id = self._next_order + self._rng.randrange(3)
        else:
            order_id = None
        payment = {
            "payment_id": self._next_payment,
            "order_id": order_id,
            "paid": self._orders[order_id]["amount"] if order_id in self._orders else self._money(500),
            "method": self._rng.choice(_METHODS),
        }
        self._payments[self._next_payment] = payment
        self._next_payment += 1
        return [Event("payments", RowKind.INSERT, payment)]

    def _amend(self) -> list[Event]:
        if not self._orders:
            return []
        order = self._any(self._orders)
        changed = order | self._rng.choice(({"status": "shipped"}, {"status": "packed"}, {"amount": self._money(500)}))
        self._orders[order["order_id"]] = changed
        return _update("orders", order, changed)

    def _move(self) -> list[Event]:
        """Move a payment to another order, which changes its join key."""
        if not self._payments or not self._orders:
            return []
        payment = self._any(self._payments)
        changed = payment | {"order_id": self._any(self._orders)["order_id"]}
        self._payments[payment["payment_id"]] = changed
        return _update("payments", payment, changed)

    def _correct(self) -> list[Event]:
        if not self._payments:
            return []
        payment = self._any(self._payments)
        changed = payment | {"paid": self._money(500), "method": None}
        self._payments[payment["payment_id"]] = changed
        return _update("payments", payment, changed)

    def _cancel(self) -> list[Event]:
        if not self._orders:
            return []
        order = self._any(self._orders)
        del self._orders[order["order_id"]]
        if order["order_id"] in self._unpaid:
            self._unpaid.remove(order["order_id"])
        return [Event("orders", RowKind.DELETE, order)]

    def _withdraw(self) -> list[Event]:
        if not self._payments:
            return []
        payment = self._any(self._payments)
        del self._payments[payment["payment_id"]]
        return [Event("payments", RowKind.DELETE, payment)]

    def _any(self, rows: dict[int, Row]) -> Row:
        """Pick one of the 200 latest rows, because recent rows change most."""
        return rows[self._rng.choice(list(islice(reversed(rows), 200)))]

    def _money(self, most: int) -> Decimal:
        return Decimal(self._rng.randint(100, most * 100)).scaleb(-2)


def _update(table: TableName, old: Row, new: Row) -> list[Event]:
    return [Event(table, RowKind.UPDATE_BEFORE, old), Event(table, RowKind.UPDATE_AFTER, new)]
