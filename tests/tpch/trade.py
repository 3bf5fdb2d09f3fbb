"""A small TPC-H whose rows are inserted, updated and deleted, as lines of a changes file.

Two of the events are the benchmark's refresh functions: an order is inserted with its lines, or deleted with them.
Other events update some columns of a row, or delete a row that others reference and insert it again later. Every update
has its old row before it, and retractions have the row as it was sent, so all tables are exact.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.tpch.population import Columns, Extent, Population
from tests.tpch.words import FEW, NATIONS, REGIONS

Line = dict[str, Any]
"""A line of a changes file."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""The tables with their primary keys."""

_CHANGED = ("lineitem",) * 6 + ("orders", "customer", "partsupp", "supplier", "part") * 2 + ("nation", "region")
_EXTENT = Extent(suppliers=8, parts=10, customers=14, orders=40, suppliers_of_part=2)


class Trade:
    """The current rows by table and key, and the events that change them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._make = Population(FEW, _EXTENT, np.random.default_rng(seed))
        self._rows: dict[str, dict[tuple[Any, ...], Line]] = {table: {} for table in KEYS}
        self._gone: list[tuple[str, Line]] = []
        self._last = 0

    def beginning(self) -> Iterator[Line]:
        """Yield the insertion of all initial rows, in the order of the tables."""
        everything = self._make.everything()
        for table in KEYS:
            for row in rows_of(everything[table]):
                yield self._comes(table, row)
        self._last = max(key for (key,) in self._rows["orders"])

    def events(self, count: int) -> Iterator[Line]:
        """Yield the changes of the given number of events."""
        for _ in range(count):
            yield from self._event()

    def _event(self) -> Iterator[Line]:
        drawn = self._dice.random()
        if drawn < 0.25:
            self._last += 1
            for table, columns in self._make.orders(np.array([self._last])).items():
                yield from (self._comes(table, row) for row in rows_of(columns))
        elif drawn < 0.45 and self._rows["orders"]:
            ((key,), order) = self._dice.choice(list(self._rows["orders"].items()))
            lines = [row for (of, _), row in self._rows["lineitem"].items() if of == key]
            yield from (self._goes("lineitem", row) for row in lines)
            yield self._goes("orders", order)
        elif drawn < 0.55 and self._gone:
            table, row = self._gone.pop(self._dice.randrange(len(self._gone)))
            if self._key(table, row) not in self._rows[table]:
                yield self._comes(table, self._written_anew(table, row))
        elif rows := self._rows[table := self._dice.choice(_CHANGED)]:
            row = self._dice.choice(list(rows.values()))
            if self._dice.random() < 0.2:
                self._gone.append((table, row))
                yield self._goes(table, row)
            else:
                yield change(table, "-U", row)
                yield self._comes(table, self._written_anew(table, row), "+U")

    def _written_anew(self, table: str, row: Line) -> Line:
        """Return the row with other values in about half of its columns except the key."""
        key = np.array([row[KEYS[table][0]]])
        other = self._another(table, key, row)
        changes = [name for name in row if name not in KEYS[table] and self._dice.random() < 0.5]
        return row | {name: other[name] for name in changes}

    def _another(self, table: str, key: Any, row: Line) -> Line:
        if table == "region":
            return row | {"r_name": self._dice.choice(REGIONS)}
        if table == "nation":
            return row | {"n_name": self._dice.choice(NATIONS)[0], "n_regionkey": self._dice.randrange(len(REGIONS))}
        if table == "partsupp":
            return next(rows_of(self._make.partsupp(key, np.array([row["ps_suppkey"]]))))
        if table in {"orders", "lineitem"}:
            return next(rows_of(self._make.orders(key)[table]))
        make = {"supplier": self._make.supplier, "part": self._make.part, "customer": self._make.customer}
        return next(rows_of(make[table](key)))

    def _comes(self, table: str, row: Line, op: str = "+I") -> Line:
        self._rows[table][self._key(table, row)] = row
        return change(table, op, row)

    def _goes(self, table: str, row: Line) -> Line:
        del self._rows[table][self._key(table, row)]
        return change(table, "-D", row)

    def _key(self, table: str, row: Line) -> tuple[Any, ...]:
        return tuple(row[name] for name in KEYS[table])


def change(table: str, op: str, row: Line) -> Line:
    """Return the change of one row."""
    return {"table": table, "op": op, "row": row}


def rows_of(columns: Columns) -> Iterator[Line]:
    """Yield rows with their values in JSON form."""
    for row in pa.table(dict(columns)).to_pylist():
        yield {name: str(value) if isinstance(value, Decimal | date) else value for name, value in row.items()}


def lines(seed: int, events: int) -> Sequence[Line]:
    """Return the initial rows, followed by the changes of the given number of events."""
    trade = Trade(seed)
    return [*trade.beginning(), *trade.events(events)]
