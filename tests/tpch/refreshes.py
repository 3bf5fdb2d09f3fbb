"""TPC-H at a scale factor as batches of columns: the tables come, then rows of them change.

Orders that go are the first that came, those that are written anew the ones behind them, so that no row changes
twice. Of a line that is written anew everything may change but its key; of a customer and of what a supplier has of a
part, too.
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
"""Of changes. Each brings a thousandth of the orders and takes away as many, as one refresh of the benchmark does."""

_ORDERS = 4_000
"""How many orders come in a batch of the beginning, with some 16,000 lines."""

_SEED = 11


@dataclass(frozen=True)
class Step:
    """A batch: of some tables rows, and the kinds of their changes. `refreshes`: it comes after the beginning."""

    tables: Mapping[str, pa.Table]
    kinds: Mapping[str, npt.NDArray[np.int8]]
    refreshes: bool


def steps(scale: float, names: Collection[str]) -> Iterator[Step]:
    """The same batches for the same scale factor, as far as these tables go."""
    extent = Extent.of(scale)
    beginning = _Beginning(Population(ALL, extent, np.random.default_rng(_SEED)), 2 * BATCHES * _share(extent.orders))
    for tables in beginning.batches():
        yield _step([(RowKind.INSERT, tables)], names, refreshes=False)
    for number in range(BATCHES):
        yield _step(beginning.refresh(number), names, refreshes=True)


def final(scale: float, names: Collection[str]) -> dict[str, pa.Table]:
    """The tables as they are behind the last batch."""
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
    """The rows of the beginning, and those of them that change later."""

    def __init__(self, make: Population, kept: int) -> None:
        self._make = make
        self._kept: dict[str, pa.Table] = {}
        self._left = kept

    def batches(self) -> Iterator[Mapping[str, pa.Table]]:
        """The small tables, then orders with their lines."""
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
        """One more batch of changes: what comes, goes, and is written anew."""
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
        """Some orders of the beginning with their lines."""
        orders = self._kept["orders"].slice(first, count)
        lines = self._kept["lineitem"]
        mine = np.isin(_numbers(lines, "l_orderkey"), _numbers(orders, "o_orderkey"))
        return {"orders": orders, "lineitem": lines.filter(pa.array(mine))}

    def _lines_anew(self, before: pa.Table) -> pa.Table:
        """The lines with all values of others but the keys."""
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
