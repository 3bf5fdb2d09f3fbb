"""TPC-H at a scale factor as batches of columns: the initial rows, then changes of them.

The first orders are deleted, and the next ones are updated, so no row changes twice. An update can change all columns
of a line except its key, and likewise of a customer and of a row of partsupp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.operators.changelog import RowKind
from tests.tpch.population import Columns, Extent, Ints, Population, order_keys
from tests.tpch.trade import KEYS
from tests.tpch.words import ALL

BATCHES = 20
"""The number of batches of changes. Each inserts and deletes 0.1 % of the orders, like one refresh of the benchmark."""

_ORDERS = 4_000
"""The number of orders per initial batch; they have about 16,000 lines."""

_SEED = 11


@dataclass(frozen=True)
class Step:
    """A batch: rows of some tables and the kinds of their changes. `refreshes` is true after the initial batches."""

    tables: Mapping[str, pa.Table]
    kinds: Mapping[str, npt.NDArray[np.int8]]
    refreshes: bool


def steps(scale: float, names: Collection[str]) -> Iterator[Step]:
    """Yield the batches for these tables, which are the same for the same scale factor."""
    extent = Extent.of(scale)
    beginning = _Beginning(Population(ALL, extent, np.random.default_rng(_SEED)), 2 * BATCHES * _share(extent.orders))
    for tables in beginning.batches():
        yield _step([(RowKind.INSERT, tables)], names, refreshes=False)
    for number in range(BATCHES):
        yield _step(beginning.refresh(number), names, refreshes=True)


def final(scale: float, names: Collection[str]) -> dict[str, pa.Table]:
    """Return the tables after the last batch."""
    first: dict[str, list[pa.Table]] = {name: [] for name in KEYS}
    gone: dict[str, list[pa.Table]] = {name: [] for name in KEYS}
    last: dict[str, list[pa.Table]] = {name: [] for name in KEYS}
    for step in steps(scale, names):
        for name, table in step.tables.items():
            went = np.isin(step.kinds[name], (RowKind.DELETE, RowKind.UPDATE_BEFORE))
            gone[name].append(table.filter(pa.array(went)).select(KEYS[name]))
            (last if step.refreshes else first)[name].append(table.filter(pa.array(~went)))
    return {name: _remaining(KEYS[name], first[name], gone[name], last[name]) for name in KEYS if first[name]}


def _remaining(key: tuple[str, ...], first: list[pa.Table], gone: list[pa.Table], last: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(first)
    left = rows.join(pa.concat_tables(gone), list(key), join_type="left anti").select(rows.column_names)
    return pa.concat_tables([left, *last])


class _Beginning:
    """The initial rows, some of which change later."""

    def __init__(self, make: Population, kept: int) -> None:
        self._make = make
        self._kept: dict[str, pa.Table] = {}
        self._left = kept

    def batches(self) -> Iterator[Mapping[str, pa.Table]]:
        """Yield the small tables, then orders with their lines."""
        small = {name: _table(columns) for name, columns in self._make.smaller().items()}
        self._kept |= small
        yield small
        kept: dict[str, list[pa.Table]] = {"orders": [], "lineitem": []}
        for first in range(0, self._make.extent.orders, _ORDERS):
            keys = np.arange(first, min(first + _ORDERS, self._make.extent.orders))
            tables = {name: _table(columns) for name, columns in self._make.orders(order_keys(keys)).items()}
            if first < self._left:
                for name, table in tables.items():
                    kept[name].append(table)
            yield tables
        self._kept |= {name: pa.concat_tables(tables) for name, tables in kept.items()}

    def refresh(self, number: int) -> list[tuple[RowKind, Mapping[str, pa.Table]]]:
        """Return one more batch of changes: deletes, updates and inserts."""
        extent = self._make.extent
        share = _share(extent.orders)
        fresh = order_keys(extent.orders + number * share + np.arange(share))
        comes = {name: _table(columns) for name, columns in self._make.orders(fresh).items()}
        goes, before = self._of_orders(number * share, share), self._of_orders((BATCHES + number) * share, share)
        after = {"lineitem": self._lines_anew(before["lineitem"]), "orders": before["orders"]}
        customers = self._kept["customer"].slice(number * _share(extent.customers), _share(extent.customers))
        pairs = self._kept["partsupp"].slice(number * _share(extent.parts * 4), _share(extent.parts * 4))
        before |= {"customer": customers, "partsupp": pairs}
        after["customer"] = _table(self._make.customer(_numbers(customers, "c_custkey")))
        after["partsupp"] = _table(self._make.partsupp(_numbers(pairs, "ps_partkey"), _numbers(pairs, "ps_suppkey")))
        return [
            (RowKind.DELETE, goes),
            (RowKind.UPDATE_BEFORE, before),
            (RowKind.UPDATE_AFTER, after),
            (RowKind.INSERT, comes),
        ]

    def _of_orders(self, first: int, count: int) -> dict[str, pa.Table]:
        """Return some of the initial orders with their lines."""
        orders = self._kept["orders"].slice(first, count)
        lines = self._kept["lineitem"]
        mine = np.isin(_numbers(lines, "l_orderkey"), _numbers(orders, "o_orderkey"))
        return {"orders": orders, "lineitem": lines.filter(pa.array(mine))}

    def _lines_anew(self, before: pa.Table) -> pa.Table:
        """Return the lines with new values in all columns except the keys."""
        others = self._make.orders(np.arange(1, len(before) + 1))["lineitem"]
        other = _table(others).slice(0, len(before))
        for name in KEYS["lineitem"]:
            other = other.set_column(other.column_names.index(name), name, before[name])
        return other


def _step(parts: list[tuple[RowKind, Mapping[str, pa.Table]]], names: Collection[str], *, refreshes: bool) -> Step:
    tables, kinds = {}, {}
    for name in names:
        found = [(kind, part[name]) for kind, part in parts if name in part]
        if found:
            tables[name] = pa.concat_tables([table for _, table in found])
            kinds[name] = np.concatenate([np.full(len(table), kind, np.int8) for kind, table in found])
    return Step(tables, kinds, refreshes)


def _share(count: int) -> int:
    return max(1, count // 1000)


def _numbers(table: pa.Table, column: str) -> Ints:
    return np.asarray(table[column])


def _table(columns: Columns) -> pa.Table:
    return pa.table(dict(columns))
