"""Aggregates for tests: rows (id, key, value) of small integers, the calls over them, and what SQL calls those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rowkind.operators.accumulators import AccumulatorCall
from rowkind.operators.aggregate_spec import AggregateSpec
from rowkind.operators.columns.changes import binary
from tests.changelogs import Row, pack, unpack

DECIMAL = pa.decimal128(10, 2)
TEXTS = {0: "", 1: "alphabet", 2: "alphabets", 3: "beta"}


@dataclass(frozen=True)
class Aggregated:
    """A call, and the same in DuckDB over the columns k, v, id of a table."""

    call: AccumulatorCall
    sql: str


BIGINT, DOUBLE, BOOLEAN = pa.int64(), pa.float64(), pa.bool_()

AGGREGATES = (
    Aggregated(AccumulatorCall("count", BIGINT), "count(*)"),
    Aggregated(AccumulatorCall("count", BIGINT, "v", BIGINT), "count(v)"),
    Aggregated(AccumulatorCall("count", BIGINT, filter="odd"), "count(*) FILTER (id % 2 = 1)"),
    Aggregated(AccumulatorCall("sum", BIGINT, "v", BIGINT), "CAST(sum(v) AS BIGINT)"),
    Aggregated(AccumulatorCall("sum", BIGINT, "v", BIGINT, "odd"), "CAST(sum(v) FILTER (id % 2 = 1) AS BIGINT)"),
    Aggregated(AccumulatorCall("sum", pa.decimal128(20, 2), "decimal", DECIMAL), "sum(v * 1.01)"),
    Aggregated(
        AccumulatorCall("avg", pa.decimal128(14, 6), "decimal", DECIMAL), "round(sum(v * 101) / 100 / count(v), 6)"
    ),
    Aggregated(AccumulatorCall("sum", DOUBLE, "double", DOUBLE), "CAST(sum(v) AS DOUBLE) / 4"),
    Aggregated(AccumulatorCall("avg", DOUBLE, "v", BIGINT), "avg(v)"),
    Aggregated(AccumulatorCall("avg", DOUBLE, "double", DOUBLE), "avg(v / 4)"),
    Aggregated(AccumulatorCall("min", BIGINT, "v", BIGINT), "min(v)"),
    Aggregated(AccumulatorCall("max", BIGINT, "v", BIGINT, "odd"), "max(v) FILTER (id % 2 = 1)"),
    Aggregated(AccumulatorCall("max", BIGINT, "v", BIGINT), "max(v)"),
    Aggregated(AccumulatorCall("min", pa.string(), "text", pa.string()), "min(t)"),
    Aggregated(AccumulatorCall("max", pa.string(), "text", pa.string()), "max(t)"),
    Aggregated(AccumulatorCall("min", DECIMAL, "decimal", DECIMAL), "CAST(min(v * 1.01) AS DECIMAL(10, 2))"),
    Aggregated(AccumulatorCall("any_value", DOUBLE, "double", DOUBLE), "min(v / 4)"),
    Aggregated(AccumulatorCall("count", BIGINT, "v", BIGINT, distinct=True), "count(DISTINCT v)"),
    Aggregated(AccumulatorCall("count", BIGINT, "text", pa.string(), distinct=True), "count(DISTINCT t)"),
    Aggregated(
        AccumulatorCall("sum", BIGINT, "v", BIGINT, "odd", distinct=True),
        "CAST(sum(DISTINCT v) FILTER (id % 2 = 1) AS BIGINT)",
    ),
    Aggregated(AccumulatorCall("avg", DOUBLE, "v", BIGINT, distinct=True), "avg(DISTINCT v)"),
    Aggregated(AccumulatorCall("bool_and", BOOLEAN, "odd", BOOLEAN), "bool_and(id % 2 = 1)"),
    Aggregated(AccumulatorCall("bool_or", BOOLEAN, "odd", BOOLEAN), "bool_or(id % 2 = 1)"),
)


def arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    """The arguments of the calls."""
    rows = [unpack(payload) for payload in payloads.to_pylist()]
    values = [row[2] for row in rows]
    return {
        "v": pa.array(values, BIGINT),
        "decimal": pa.array([None if v is None else Decimal(v) * Decimal("1.01") for v in values], DECIMAL),
        "double": pa.array([None if v is None else v / 4 for v in values], DOUBLE),
        "text": pa.array([None if v is None else TEXTS[v] for v in values], pa.string()),
        "odd": pa.array([None if row[0] is None else row[0] % 2 == 1 for row in rows], BOOLEAN),
    }


def group_of(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """The key column."""
    return binary(pack((unpack(payload)[1],)) for payload in payloads.to_pylist())


def no_group(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Nothing."""
    return binary([b""] * len(payloads))


def result(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """The results packed; those that are not integers as integers that tell them apart."""
    return binary(pack(tuple(map(whole, row))) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def whole(value: Any) -> int | None:
    """A number for each different result: millionths, or the text's bytes as a number."""
    if value is None:
        return None
    if isinstance(value, str):
        return int.from_bytes(value.encode()[:7].ljust(8, b"\0"), "big") // 256 + len(value)
    return round(Decimal(value) * 1_000_000) if not isinstance(value, bool) else int(value)


def spec_of(
    aggregates: Sequence[Aggregated], *, retracts: bool = True, is_global: bool = False, ttl_ms: int | None = None
) -> AggregateSpec:
    """The spec of these aggregates by the key column, or over everything."""
    group = no_group if is_global else group_of
    calls = tuple(one.call for one in aggregates)
    return AggregateSpec(calls, arguments, group, result, retracts, is_global, ttl_ms)


def row_of(key: int | None, results: Sequence[Any], *, is_global: bool = False) -> Row:
    """The row that an aggregate emits for these results."""
    return (*(() if is_global else (key,)), *map(whole, results))
