"""A small shop: its events, its topics, and the rows that the example's two queries must give.

The rows are written with fastavro in Confluent's framing and sent by kcat, without the product's codecs. The expected
results are computed by two loops over the live rows.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

import fastavro

from tests.e2e.kcat import Kcat, Message

Table = Literal["orders", "payments"]
Kind = Literal["+I", "-U", "+U", "-D"]
Values = tuple[Any, ...]

NULL = "null"
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SCHEMAS: dict[Table, dict[str, Any]] = {
    "orders": {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "order_id", "type": "long"},
            {"name": "customer", "type": [NULL, "string"]},
            {"name": "amount", "type": [NULL, MONEY]},
            {"name": "status", "type": [NULL, "string"]},
            {"name": "placed", "type": [NULL, {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    },
    "payments": {
        "type": "record",
        "name": "payment",
        "fields": [
            {"name": "payment_id", "type": "long"},
            {"name": "order_id", "type": [NULL, "long"]},
            {"name": "paid", "type": [NULL, MONEY]},
            {"name": "method", "type": [NULL, "string"]},
        ],
    },
}
KEYS: dict[Table, str] = {"orders": "order_id", "payments": "payment_id"}


@dataclass(frozen=True)
class Event:
    """A change of a table."""

    table: Table
    kind: Kind
    row: dict[str, Any]


def order(number: int, customer: str, amount: str, status: str = "new") -> dict[str, Any]:
    """Return a row of the table orders."""
    placed = datetime(2026, 1, 5, 8, number % 60, tzinfo=UTC)
    return {
        "order_id": number,
        "customer": customer,
        "amount": Decimal(amount),
        "status": status,
        "placed": placed,
    }


def payment(number: int, order_id: int | None, paid: str, method: str | None = "card") -> dict[str, Any]:
    """Return a row of the table payments."""
    return {"payment_id": number, "order_id": order_id, "paid": Decimal(paid), "method": method}


def insert(table: Table, *rows: dict[str, Any]) -> list[Event]:
    """Return events that insert the rows."""
    return [Event(table, "+I", row) for row in rows]


def update(table: Table, old: dict[str, Any], **changed: Any) -> list[Event]:
    """Return events that update a row."""
    return [Event(table, "-U", old), Event(table, "+U", old | changed)]


def delete(table: Table, *rows: dict[str, Any]) -> list[Event]:
    """Return events that delete the rows."""
    return [Event(table, "-D", row) for row in rows]


ADA, BLAISE, CARL = order(1, "Ada", "10.00"), order(2, "Blaise", "20.50"), order(3, "Carl", "30.00")
LATE = order(9, "Dorothea", "90.00")
FIRST, EARLY, UNKNOWN = payment(1, 1, "10.00"), payment(2, 9, "20.50"), payment(3, None, "5.00", None)
AGAIN = payment(4, 1, "1.00", "cash")

CHAPTERS: Sequence[tuple[str, list[Event]]] = (
    (
        "orders with, without and before their payments",
        insert("orders", ADA, BLAISE, CARL) + insert("payments", FIRST, EARLY, UNKNOWN),
    ),
    (
        "the order comes that was paid before, and a second payment of one order",
        insert("orders", LATE) + insert("payments", AGAIN),
    ),
    (
        "a payment moves to the right order, an amount changes, an order is cancelled",
        update("payments", EARLY, order_id=2) + update("orders", ADA, amount=Decimal("11.00")) + delete("orders", CARL),
    ),
    (
        "a lost payment is found to belong to an order, and a paid order is cancelled",
        update("payments", UNKNOWN, order_id=9) + delete("orders", ADA | {"amount": Decimal("11.00")}),
    ),
    (
        "both payments of the cancelled order are taken back, and a last order is placed",
        delete("payments", FIRST, AGAIN) + insert("orders", order(10, "Emmy", "0.99")),
    ),
)


class Tables:
    """The live rows of both tables, and the results of the example's queries over them."""

    def __init__(self) -> None:
        self._rows: dict[Table, dict[int, dict[str, Any]]] = {"orders": {}, "payments": {}}

    def apply(self, events: Iterable[Event]) -> None:
        """Apply the events to the live rows."""
        for event in events:
            rows, key = self._rows[event.table], event.row[KEYS[event.table]]
            if event.kind in ("+I", "+U"):
                rows[key] = event.row
            else:
                assert rows.pop(key) == event.row, "the scenario takes back a row that is not there"

    def order_payments(self) -> Counter[Values]:
        """Return every order with each of its payments, or with NULLs if it has none."""
        result: Counter[Values] = Counter()
        for order_id, row in self._rows["orders"].items():
            of_order = tuple(row[name] for name in ("order_id", "customer", "amount", "status"))
            paid = [tuple(p[name] for name in ("payment_id", "paid", "method")) for p in self._of(order_id)]
            result.update(of_order + of_payment for of_payment in paid or [(None, None, None)])
        return result

    def paid_orders(self, method: str = "") -> Counter[Values]:
        """Return every payment of an order, with the remaining amount; only those of one method if it is given."""
        return Counter(
            (p["payment_id"], order_id, row["customer"], p["paid"], row["amount"] - p["paid"])
            for order_id, row in self._rows["orders"].items()
            for p in self._of(order_id)
            if method in ("", p["method"])
        )

    def _of(self, order_id: int) -> list[dict[str, Any]]:
        return [row for row in self._rows["payments"].values() if row["order_id"] == order_id]


@dataclass(frozen=True)
class Teller:
    """Sends events to the topics: one run of kcat for each sequence of events of one table and kind."""

    client: Kcat
    topics: dict[Table, str]
    schema_ids: dict[Table, int]

    def tell(self, events: Iterable[Event]) -> None:
        """Send the events in order."""
        for (table, kind), stretch in groupby(events, key=lambda event: (event.table, event.kind)):
            messages = [(str(event.row[KEYS[table]]).encode(), self._value(table, event.row)) for event in stretch]
            self.client.produce(self.topics[table], messages, {"op": kind})

    def _value(self, table: Table, row: dict[str, Any]) -> bytes:
        packed = io.BytesIO()
        fastavro.schemaless_writer(packed, SCHEMAS[table], row)
        return b"\0" + self.schema_ids[table].to_bytes(4, "big") + packed.getvalue()


class Reader:
    """Reads result topics with independent tools: bytes from kcat, the schema by its id, fastavro."""

    def __init__(self, client: Kcat, schema_by_id: Callable[[int], Any]) -> None:
        self._client = client
        self._schema_by_id = schema_by_id

    def retract_topic(self, topic: str) -> Counter[Values]:
        """Return the rows that a retract topic stands for; a retraction must follow the row that it retracts."""
        rows: Counter[Values] = Counter()
        for message in self._client.consume(topic):
            kind, row = message.headers["op"], self._row(message)
            assert row is not None, f"a {kind} without its row at {message.partition}:{message.offset}"
            rows[row] += {"+I": 1, "+U": 1, "-U": -1, "-D": -1}[kind]
            assert rows[row] >= 0, f"{kind} of {row} at {message.partition}:{message.offset}, which is not there"
        return +rows

    def upsert_topic(self, topic: str) -> Counter[Values]:
        """Return the rows that an upsert topic stands for: the last value of each key."""
        rows: dict[bytes, Values] = {}
        for message in self._client.consume(topic):
            assert message.key is not None, f"no key at {message.partition}:{message.offset}"
            row = self._row(message)
            rows.pop(message.key, None)
            if row is not None:
                rows[message.key] = row
        return Counter(rows.values())

    def _row(self, message: Message) -> Values | None:
        value = message.value
        if value is None:
            return None
        assert value[0] == 0, "the value is not in Confluent's framing"
        schema = self._schema_by_id(int.from_bytes(value[1:5], "big"))
        row = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema)
        assert isinstance(row, dict)
        return tuple(row.values())
