"""Hand-written physical plans, among them one with every operator, with its data and its SQL."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record, Type
from rowkind.operators.changelog import ChangelogMode, RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.operators.join.facts import HAS_NULL, NOT_EMPTY
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.aggregation import AggregateCall, Aggregation, PhysicalAggregateCall
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.keys import Key, SubKeyPart
from rowkind.service.physical.node import (
    PhysicalInput,
    PhysicalNode,
    PhysicalOperator,
    PhysicalScan,
    PhysicalSink,
    PhysicalUnion,
)
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalNormalize, PhysicalRank
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import walk

ORDERS = Record.of({"order_id": "BIGINT NOT NULL", "customer": "INT", "amount": "DECIMAL(10,2)"}, "orders")
CUSTOMERS = Record.of({"id": "INT NOT NULL", "name": "STRING"}, "customers")
BLOCKED = Record.of({"who": "INT"}, "blocked")
EXTRA = Record.of({"guest": "INT", "spent": "DECIMAL(20,2)"}, "extra")

ROW_STATE = PhysicalInput("multiset", None, by_seq=False)
BY_KEY = PhysicalInput("one row per key", None, by_seq=True)


def column(record: Record, name: str) -> Expression:
    """Return a reference to a column."""
    return Expression(f'"{name}"', record.type(name), (name,), name, name)


def by(record: Record, *names: str, null_safe: bool = True, drop_null: bool = False) -> Key:
    """Return a key of columns."""
    return Key(tuple(column(record, name) for name in names), (null_safe,) * len(names), drop_null)


def select(record: Record, *outputs: str | tuple[str, Expression], padded: bool = False, **rest: Any) -> Calc:
    """Return a calc over `record`: columns by name and expressions with their names; all columns if none is given."""
    named = [(each, column(record, each)) if isinstance(each, str) else each for each in outputs or record.names]
    output = Record.of(
        {name: f"{each.type.sql}{'' if each.type.nullable else ' NOT NULL'}" for name, each in named}, record.name
    )
    return Calc(record, output.nullable() if padded else output, tuple(each for _, each in named), **rest)


def scan(name: str, record: Record, mode: ChangelogMode, calc: Calc, *primary_key: str) -> PhysicalScan:
    """Return a scan of the table and topic named like its record."""
    return PhysicalScan(f"scan_{name}", SourceTable(record.name, record.name, mode, record, primary_key), calc, name)


def aggregation(
    record: Record, group: Sequence[str], calls: Sequence[PhysicalAggregateCall], *, retracts: bool = True
) -> Aggregation:
    """Return calls over rows of `record`, grouped by some columns or global."""
    columns = {name: record.type(name) for name in group} | {call.name: call.type for call in calls}
    output = Record.of(
        {name: f"{type_.sql}{'' if type_.nullable else ' NOT NULL'}" for name, type_ in columns.items()}, "aggregate"
    )
    return Aggregation(record, tuple(group), tuple(calls), output, retracts, is_global=not group, ttl_ms=None)


def call(name: str, function: Any, type_: str, *arguments: str, distinct: bool = False) -> PhysicalAggregateCall:
    """Return a call of an aggregate function over columns."""
    return AggregateCall(function, arguments, Type.of(type_), distinct=distinct).named(name, f"{function}({arguments})")


def counting(record: Record) -> Aggregation:
    """Return COUNT(*) over all rows, as a column `n`."""
    return aggregation(record, (), [call("n", "count", "BIGINT NOT NULL")])


def counted(name: str, node: PhysicalNode, calc: Calc, *, fused: bool = False) -> PhysicalAggregate:
    """Return the node that counts all rows."""
    return PhysicalAggregate(name, node, counting(node.calc.output), calc=calc, fused=fused)


COUNTED = Record.of({"n": "BIGINT NOT NULL"}, "aggregate")

SPENT = aggregation(
    ORDERS,
    ("customer",),
    [
        call("orders", "count", "BIGINT NOT NULL"),
        call("total", "sum", "DECIMAL(20,2)", "amount"),
        call("largest", "max", "DECIMAL(10,2)", "amount"),
        call("amounts", "count", "BIGINT NOT NULL", "customer", "amount", distinct=True),
    ],
)
EVERYTHING = """
WITH spent AS (
  SELECT customer, count(*) AS orders, sum(amount)::DECIMAL(20,2) AS total, max(amount) AS largest,
    count(DISTINCT amount) FILTER (customer IS NOT NULL) AS amounts
  FROM orders GROUP BY customer
), named AS (SELECT s.*, c.name FROM spent s LEFT JOIN customers c ON s.customer = c.id),
free AS (SELECT customer, orders, total, name, largest, amounts FROM named WHERE customer NOT IN (FROM blocked)),
both_ AS (
  FROM free UNION ALL
  SELECT guest, 0, spent, 'guest', NULL, 0 FROM extra WHERE EXISTS (FROM customers WHERE id = guest)
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY name ORDER BY total DESC NULLS LAST, customer NULLS FIRST) AS place
  FROM both_
)
SELECT ranked.*, (SELECT count(*) FROM orders) AS n FROM ranked WHERE place <= 2
"""
NAMED = f"{EVERYTHING[: EVERYTHING.index('free AS')].rstrip().removesuffix(',')} FROM named"
"""The join in the middle of `EVERYTHING`, as its own query."""


def everything(*, fused: bool = True) -> PhysicalSink:
    """Return `EVERYTHING` as a plan with every operator; with `fused`, operators that can be fused are."""
    exact = PhysicalNormalize(
        "normalize_1",
        scan("o", ORDERS, "retract", select(ORDERS, key=by(ORDERS, "order_id")), "order_id"),
        BY_KEY,
        "",
        calc=select(ORDERS, key=by(ORDERS, "customer"), nets=True, partial=SPENT),
    )
    spent = PhysicalAggregate(
        "aggregate_1",
        exact,
        SPENT,
        calc=select(SPENT.output, key=by(SPENT.output, "customer", null_safe=False), nets=True),
        fused=fused,
    )
    names = _names(fused=fused)
    schema = spent.calc.output.concat(names.calc.output)
    by_customer = by(schema, "customer", null_safe=False)
    named = PhysicalJoin(
        "join_1",
        spent,
        names,
        "left",
        PhysicalInput("one row per key", None, by_seq=False),
        PhysicalInput("one row per key", None, by_seq=False),
        schema,
        None,
        calc=select(schema, "customer", "orders", "total", "name", "largest", "amounts", key=by_customer, nets=True),
        fused=fused,
    )
    ranked = _ranked(_free(named), _guests(named.calc.output))
    orders = PhysicalNormalize(
        "normalize_3",
        scan("o2", ORDERS, "retract", select(ORDERS, key=by(ORDERS, "order_id")), "order_id"),
        BY_KEY,
        "",
        calc=select(ORDERS, "order_id", nets=True, partial=counting(ORDERS.select(["order_id"]))),
    )
    count = counted("aggregate_2", orders, select(COUNTED, side=1, nets=True), fused=fused)
    joined = ranked.calc.output.concat(count.calc.output)
    final = PhysicalJoin(
        "join_4", ranked, count, "inner", ROW_STATE, ROW_STATE, joined, None, calc=select(joined, nets=True)
    )
    return PhysicalSink("all", "all", "retract", final, (), joined, None, exchange=False)


def named() -> PhysicalSink:
    """Return `NAMED` as a plan, built from nodes of the plan of `EVERYTHING`."""
    (join,) = (node for node in walk(everything()) if isinstance(node, PhysicalJoin) and node.node == "join_1")
    row = join.schema.select(["customer", "orders", "total", "largest", "amounts", "name"])
    calc = select(join.schema, *row.names, nets=True)
    own = replace(join, calc=calc, fused=False)
    return PhysicalSink("named", "named", "retract", own, (), calc.output, None, exchange=False)


def _names(*, fused: bool) -> PhysicalNormalize:
    """Return the customers, with the row that each change replaces."""
    by_id = select(CUSTOMERS, key=by(CUSTOMERS, "id"), upsert=True, replaced_by=("id",))
    calc = select(CUSTOMERS, key=by(CUSTOMERS, "id", null_safe=False), side=1, padded=True, nets=True)
    scanned = scan("c", CUSTOMERS, "upsert", by_id, "id")
    return PhysicalNormalize("normalize_2", scanned, BY_KEY, "", calc=calc, fused=fused)


def _free(named: PhysicalJoin) -> PhysicalJoin:
    """Return NOT IN, with the facts about the whole table derived from the table itself."""
    row = named.calc.output
    order = SubKeyPart(column(row, "total"), descending=True, nulls_first=False), SubKeyPart(column(row, "customer"))
    missing = Expression('"who" IS NULL', Type.of("BOOLEAN NOT NULL"), ("who",), "who IS NULL")
    who = select(BLOCKED, key=by(BLOCKED, "who", null_safe=False, drop_null=True), side=1, nets=True)
    some = select(BLOCKED, key=Key(constant=NOT_EMPTY), side=2, nets=True)
    null = replace(some, key=Key(constant=HAS_NULL), predicate=missing)
    return PhysicalJoin(
        "join_2",
        named,
        scan("b", BLOCKED, "retract", who),
        "not in",
        ROW_STATE,
        ROW_STATE,
        row,
        None,
        calc=select(row, key=by(row, "name"), sub_key=order, nets=True),
        facts=(scan("b_any", BLOCKED, "retract", some), scan("b_null", BLOCKED, "retract", null)),
    )


def _guests(row: Record) -> PhysicalJoin:
    """Return a semi join whose rows have the columns of `row`."""
    none = Expression("0", Type.of("BIGINT NOT NULL"), (), "0")
    name = Expression("'guest'", Type.of("STRING"), (), "'guest'")
    outputs = (
        column(EXTRA, "guest"),
        none,
        column(EXTRA, "spent"),
        name,
        Expression("NULL::DECIMAL(10,2)", Type.of("DECIMAL(10,2)"), (), "NULL"),
        none,
    )
    order = SubKeyPart(column(EXTRA, "spent"), descending=True, nulls_first=False), SubKeyPart(column(EXTRA, "guest"))
    return PhysicalJoin(
        "join_3",
        scan("e", EXTRA, "append", select(EXTRA, key=by(EXTRA, "guest", null_safe=False, drop_null=True), nets=True)),
        scan(
            "c2",
            CUSTOMERS,
            "upsert",
            select(CUSTOMERS, "id", key=by(CUSTOMERS, "id"), side=1, upsert=True, replaced_by=("id",)),
            "id",
        ),
        "semi",
        ROW_STATE,
        BY_KEY,
        EXTRA,
        None,
        calc=Calc(EXTRA, row, outputs, Key((name,), (True,)), order, nets=True),
    )


def _ranked(*inputs: PhysicalJoin) -> PhysicalRank:
    """Return the first two rows of each name, with their place."""
    row = inputs[0].calc.output
    numbered = row.concat(Record.of({"place": "INT NOT NULL"}, row.name))
    return PhysicalRank(
        "rank_1",
        PhysicalUnion("union_1", inputs),
        ROW_STATE,
        Ranking("row_number", 1, 2),
        {"place": "row_number"},
        "",
        (),
        ("name",),
        ("total",),
        numbered,
        calc=select(numbered, nets=True),
    )


class Shop:
    """The tables of `EVERYTHING`, changed at random, and the SQL result over them."""

    def __init__(self, seed: str) -> None:
        print(f"seed '{seed}'")
        self._dice = random.Random(seed)
        self._orders: dict[int, dict[str, Any]] = {}
        self._customers: dict[int, dict[str, Any]] = {}
        self._blocked: list[dict[str, Any]] = []
        self._extra: list[dict[str, Any]] = []
        self._seq = 0

    def batch(self, changes: int) -> Mapping[str, Rows]:
        """Return the changes of each table in one more batch; a table may have none."""
        done: list[tuple[Record, RowKind, dict[str, Any]]] = []
        for _ in range(changes):
            done += self._dice.choice([self._order, self._order, self._customer, self._block, self._visit])()
        return {
            record.name: self._rows(record, [(kind, row) for other, kind, row in done if other is record])
            for record in (ORDERS, CUSTOMERS, BLOCKED, EXTRA)
        }

    def result(self, sql: str = EVERYTHING) -> Counter[tuple[Any, ...]]:
        """Return the current rows of the query."""
        with duckdb.connect() as connection:
            for record, rows in (
                (ORDERS, self._orders.values()),
                (CUSTOMERS, self._customers.values()),
                (BLOCKED, self._blocked),
                (EXTRA, self._extra),
            ):
                connection.register(record.name, pa.Table.from_pylist(list(rows), record.arrow))
            return Counter(connection.sql(sql).fetchall())

    def _rows(self, record: Record, changes: Sequence[tuple[RowKind, dict[str, Any]]]) -> Rows:
        columns = pa.Table.from_pylist([row for _, row in changes], pa.schema([(f.name, f.type) for f in record.arrow]))
        seq = np.arange(self._seq, self._seq + len(changes), dtype=np.int64) << 16
        self._seq += len(changes)
        return Rows(np.array([kind for kind, _ in changes], np.int8), seq, codec.encode(record, columns))

    def _order(self) -> list[tuple[Record, RowKind, dict[str, Any]]]:
        """Insert an order, replace one without its old row, or delete one."""
        number = self._dice.randrange(12)
        old = self._orders.pop(number, None)
        if old is not None and self._dice.random() < 0.4:
            return [(ORDERS, RowKind.DELETE, old)]
        amount = self._dice.choice([None, Decimal("1.50"), Decimal(20), Decimal("300.25")])
        new = {"order_id": number, "customer": self._dice.choice([None, 1, 2, 3]), "amount": amount}
        self._orders[number] = new
        return [(ORDERS, RowKind.UPDATE_AFTER if old else RowKind.INSERT, new)]

    def _customer(self) -> list[tuple[Record, RowKind, dict[str, Any]]]:
        number = self._dice.randrange(5)
        if self._dice.random() < 0.3:
            self._customers.pop(number, None)
            return [(CUSTOMERS, RowKind.DELETE, {"id": number, "name": None})]
        self._customers[number] = {"id": number, "name": self._dice.choice([None, "ann", "bob"])}
        return [(CUSTOMERS, RowKind.UPDATE_AFTER, self._customers[number])]

    def _block(self) -> list[tuple[Record, RowKind, dict[str, Any]]]:
        if self._blocked and self._dice.random() < 0.6:
            return [(BLOCKED, RowKind.DELETE, self._blocked.pop(self._dice.randrange(len(self._blocked))))]
        self._blocked.append({"who": self._dice.choice([None, 2, 2, 3, 8, 9, 9, 9])})
        return [(BLOCKED, RowKind.INSERT, self._blocked[-1])]

    def _visit(self) -> list[tuple[Record, RowKind, dict[str, Any]]]:
        spent = self._dice.choice([None, Decimal("7.10"), Decimal("0.30")])
        self._extra.append({"guest": self._dice.choice([None, 1, 4]), "spent": spent})
        return [(EXTRA, RowKind.INSERT, self._extra[-1])]


def rows_of(record: Record, payloads: Sequence[bytes]) -> Counter[tuple[Any, ...]]:
    """Return packed rows as DuckDB's tuples."""
    decoded = codec.read(record, pa.array(payloads, pa.binary()))
    columns = [decoded.column(name).to_pylist() for name in record.names]
    return Counter(zip(*columns, strict=True))


def stateful(sink: PhysicalSink) -> list[PhysicalOperator]:
    """Return all operators of a plan, inputs first."""
    return [node for node in walk(sink) if not isinstance(node, PhysicalSink | PhysicalScan | PhysicalUnion)]
