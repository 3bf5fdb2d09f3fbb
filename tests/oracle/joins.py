"""Test support for joins of two sides: layouts, TTLs and conditions on the values of a pair of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.columns.changes import Mask
from tests.changelogs import Row, unpack
from tests.oracle.inputs import Input
from tests.oracle.trials import Table, Views, registered, views_of

LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
TTLS = (None, 2, 5)
_COLUMNS = ("id", "k", "v")


@dataclass(frozen=True)
class PairCondition:
    """A condition as SQL and as a function of one pair of rows."""

    sql: str
    holds: Callable[[Row, Row], bool]

    def __call__(self, left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
        """Return whether each pair of rows matches."""
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([self.holds(unpack(one), unpack(other)) for one, other in pairs], np.bool_)


LESS = PairCondition("l.v < r.v", lambda left, right: None not in (left[-1], right[-1]) and left[-1] < right[-1])  # type: ignore[operator]
NULL_OR_ONE = PairCondition("l.v IS NULL OR r.v = 1", lambda left, right: left[-1] is None or right[-1] == 1)


def selected(name: str, of: Input) -> str:
    """Return the columns of a side's payload in SQL."""
    return ", ".join(f"{name}.{_COLUMNS[at]}" for at in of.table.payload)


def key(name: str, of: Input) -> str:
    """Return the key column of a side in SQL."""
    return f"{name}.{_COLUMNS[of.table.key[0]]}"


def joined_in_sql(database: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[Table]) -> Views:
    """Return the view after each batch from a query over `l` and `r` whose first column is the batch number."""
    for name, rows in zip("lr", tables, strict=True):
        registered(database, name, rows, *_COLUMNS)
    return views_of(database.sql(sql).fetchall())
