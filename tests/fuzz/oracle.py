"""The result of a query over complete tables, computed by DuckDB from the same SQL, translated by sqlglot.

If DuckDB's semantics differ from Spark's, the query is rewritten:

- `(a, b) IN (SELECT …)`: DuckDB compares NULLs as equal; written with EXISTS.
- `(a, b) = (SELECT …)`: DuckDB compares one column only; written with one subquery per column.
- `COUNT_IF(x)`: NULL over no rows in DuckDB; written as COUNT.
- `COLLECT_LIST(x)`: NULL over no rows in DuckDB; written with COALESCE.
- `ORDER BY PROCTIME()`: written with an additional column, the number of the change that wrote the row; `*` includes
  it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from rowkind.avro.json_rows import check_row
from rowkind.avro.schema import Record
from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from tests.fuzz.changelogs import Rows
from tests.fuzz.windows import View

ARRIVAL = "arrival$"

Bag = Counter[tuple[Any, ...]]
"""Rows as a multiset of plain values."""


class Oracle:
    """A query over the tables of a job in DuckDB."""

    def __init__(self, job: Job, sql: str, windows: Sequence[View] = ()) -> None:
        self._windows = windows
        self._records = {name: declared(job, name) for name in job.tables}
        self._sql = translated(sql)
        self._connection = _connection()
        self._empty = True

    def result(self, tables: Mapping[str, Rows], value: Record) -> Bag:
        """Return the rows of the result under the sink's record. Raises duckdb.Error."""
        for name, rows in tables.items():
            self._connection.register(name, self._table(self._records[name], rows))
        for each in self._windows:
            table = self._table(self._records[each.table], tables[each.table])
            self._connection.register(each.name, each.rows(table))
        found = self._connection.sql(self._sql).to_arrow_table()
        # By name: with `*` and USING, Spark has the shared columns first, DuckDB in the order of the table.
        columns = [_cast(found.column(field.name), field.type.arrow) for field in value.fields]
        others = [name for name in found.column_names if not name.startswith(ARRIVAL)]
        assert len(others) == len(columns), "DuckDB has other columns"
        return bag(pa.table(columns, names=list(value.names)))

    def _table(self, record: Record, rows: Rows) -> pa.Table:
        checked = [check_row(record, row) for _, row in rows.live]
        columns = {each.name: pa.array([row[each.name] for row in checked], each.type.arrow) for each in record.fields}
        if ARRIVAL in self._sql:
            columns[ARRIVAL] = pa.array([number for number, _ in rows.live], pa.int64())
        return pa.table(columns)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast a column; decimals are rounded half away from zero, as Spark does."""
    if pa.types.is_decimal(type_) and pa.types.is_decimal(column.type) and column.type.scale > type_.scale:
        column = pc.round(column, type_.scale, "half_towards_infinity")
    return column.cast(type_)


def bag(table: pa.Table) -> Bag:
    """Return the rows of a table as plain values; values that are equal in SQL are equal."""
    rows = zip(*(map(_plain, column.to_pylist()) for column in table.columns), strict=True)
    return Counter(rows)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        # Ignore the sign of zero, and digits that depend on the order of addition.
        return 0.0 if value == 0 else float(f"{value:.12g}")
    return tuple(map(_plain, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


_TRIED = {"TRY_SUM": exp.Sum, "TRY_AVG": exp.Avg}
"""Without overflow these functions are equivalent."""


def translated(sql: str) -> str:
    """Translate a query into DuckDB's dialect."""
    tree = sqlglot.parse_one(sql, read="spark")
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    for node in list(tree.find_all(exp.In, exp.CountIf, exp.Anonymous, exp.Predicate)):
        if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.args.get("query"):
            node.replace(_one_of(node))
        elif isinstance(node, exp.Binary) and isinstance(node.this, exp.Tuple):
            node.replace(_one_by_one(node))
        elif isinstance(node, exp.CountIf):
            node.replace(exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))])))
        elif node.name.upper() in _TRIED:
            node.replace(_TRIED[node.name.upper()](this=node.expressions[0]))
        elif node.name.upper() == "PROCTIME":
            node.replace(_arrival(node))
    return with_empty_lists(tree).sql("duckdb")


def with_empty_lists(tree: exp.Expression) -> exp.Expression:
    """Return the query with lists over no rows that are empty in DuckDB as well."""
    for node in list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg)):
        call = node.parent if isinstance(node.parent, exp.Filter) else node
        call.replace(exp.Coalesce(this=call.copy(), expressions=[exp.Array()]))
    return tree


def _one_of(node: exp.In) -> exp.Expression:
    """Return an expression that is TRUE if a row is equal, NULL if one may be equal, else FALSE."""
    select = node.args["query"].this
    pairs = zip(node.this.expressions, select.expressions, strict=True)
    equal = exp.and_(*(exp.EQ(this=other.unalias().copy(), expression=own.copy()) for own, other in pairs))
    found = exp.Exists(this=select.where(equal))
    unknown = exp.Exists(this=select.where(exp.Is(this=exp.paren(equal.copy()), expression=exp.Null())))
    return exp.case().when(found, exp.true()).when(unknown, exp.null()).else_(exp.false())


def _one_by_one(node: exp.Binary) -> exp.Expression:
    """Return a comparison of rows as comparisons of their values."""
    left, right = node.this.expressions, node.expression
    if isinstance(right, exp.Tuple):
        others = right.expressions
    else:
        others = [exp.Subquery(this=right.this.select(each.copy(), append=False)) for each in right.this.expressions]
    pairs = list(zip(left, others, strict=True))
    same = [exp.EQ(this=one.copy(), expression=other.copy()) for one, other in pairs]
    if isinstance(node, exp.EQ):
        return exp.paren(exp.and_(*same))
    if isinstance(node, exp.NEQ):
        return exp.paren(exp.or_(*(exp.NEQ(this=one.copy(), expression=other.copy()) for one, other in pairs)))
    strict = exp.LT if isinstance(node, exp.LT | exp.LTE) else exp.GT
    ways = [
        exp.and_(*same[:at], strict(this=one.copy(), expression=other.copy())) for at, (one, other) in enumerate(pairs)
    ]
    return exp.paren(exp.or_(*ways, *([exp.and_(*same)] if isinstance(node, exp.LTE | exp.GTE) else [])))


def _arrival(node: exp.Expression) -> exp.Expression:
    select = node.find_ancestor(exp.Select)
    assert select is not None, "PROCTIME() stands in a SELECT"
    return exp.column(exp.to_identifier(ARRIVAL, quoted=True), table=select.args["from_"].this.alias_or_name)
