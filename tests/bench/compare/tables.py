"""The source tables: orders and payments of `workload`, and people, auctions and bids of `nexmark`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class Table:
    """Columns with their types, the primary key (empty if none), and the number that determines a row's partition.

    The column `ts` has the event time; rows arrive up to `delay` seconds out of order.
    """

    columns: Mapping[str, str]
    key: str
    partition: str
    delay: int


TABLES: Mapping[str, Table] = {
    "orders": Table(
        {
            "order_id": "BIGINT NOT NULL",
            "customer_id": "BIGINT NOT NULL",
            "amount": "DOUBLE",
            "status": "STRING",
            "ts": "TIMESTAMP(3) NOT NULL",
        },
        key="order_id",
        partition="order_id",
        delay=1,
    ),
    "payments": Table(
        {
            "payment_id": "BIGINT NOT NULL",
            "order_id": "BIGINT NOT NULL",
            "paid": "DOUBLE",
            "method": "STRING",
            "ts": "TIMESTAMP(3) NOT NULL",
        },
        key="payment_id",
        partition="order_id",
        delay=1,
    ),
    "person": Table(
        {
            "id": "BIGINT NOT NULL",
            "name": "STRING NOT NULL",
            "emailAddress": "STRING NOT NULL",
            "creditCard": "STRING NOT NULL",
            "city": "STRING NOT NULL",
            "state": "STRING NOT NULL",
            "ts": "TIMESTAMP(3) NOT NULL",
            "extra": "STRING NOT NULL",
        },
        key="id",
        partition="id",
        delay=4,
    ),
    "side_input": Table(
        {"id": "BIGINT NOT NULL", "word": "STRING NOT NULL", "ts": "TIMESTAMP(3) NOT NULL"},
        key="id",
        partition="id",
        delay=4,
    ),
    "auction": Table(
        {
            "id": "BIGINT NOT NULL",
            "itemName": "STRING NOT NULL",
            "description": "STRING NOT NULL",
            "initialBid": "BIGINT NOT NULL",
            "reserve": "BIGINT NOT NULL",
            "ts": "TIMESTAMP(3) NOT NULL",
            "expires": "TIMESTAMP(3) NOT NULL",
            "seller": "BIGINT NOT NULL",
            "category": "BIGINT NOT NULL",
            "extra": "STRING NOT NULL",
        },
        key="id",
        partition="id",
        delay=4,
    ),
    "bid": Table(
        {
            "auction": "BIGINT NOT NULL",
            "bidder": "BIGINT NOT NULL",
            "price": "BIGINT NOT NULL",
            "channel": "STRING NOT NULL",
            "url": "STRING NOT NULL",
            "ts": "TIMESTAMP(3) NOT NULL",
            "extra": "STRING NOT NULL",
        },
        key="",
        partition="auction",
        delay=4,
    ),
}


@dataclass(frozen=True)
class Changes:
    """Changes of one table in the order in which they are sent; in a delete only the primary key counts."""

    table: str
    columns: dict[str, pa.Array]
    deleted: npt.NDArray[np.bool_]

    @property
    def key(self) -> str:
        """The primary key."""
        return TABLES[self.table].key

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.deleted)

    def slice(self, first: int, last: int) -> Changes:
        """Return a part of the changes."""
        columns = {name: column.slice(first, last - first) for name, column in self.columns.items()}
        return Changes(self.table, columns, self.deleted[first:last])
