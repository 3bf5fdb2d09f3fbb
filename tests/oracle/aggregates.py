"""Aggregate calls for tests over rows (id, key, value) of small integers, each with its equivalent in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.columns.changes import Indices, Int64s, binary
from tests.changelogs import Row, pack, unpack

DECIMAL = pa.decimal128(10, 2)
TEXTS = {0: "", 1: "alphabet", 2: "alphabets", 3: "beta"}


@dataclass(frozen=True)
class Aggregated:
    """An aggregate call, and the same call in DuckDB over a table's columns k, v and id."""

    call: AccumulatorCall
    sql: str


BIGINT, DOUBLE, BOOLEAN, BINARY = pa.int64(), pa.float64(), pa.bool_(), pa.binary()

PAIR = pa.struct([pa.field("y", DOUBLE), pa.field("x", DOUBLE)])


def weighed(values: pa.Array, group: Indices, times: Int64s, count: int) -> pa.Array:
    """Return a number that distinguishes multisets of small numbers: the count plus 1000 times the sum of squares."""
    numbers, sums = values.to_numpy(zero_copy_only=False), np.zeros(count, np.int64)
    np.add.at(sums, group, times * (1000 * numbers * numbers + 1))
    return pa.array(sums)


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
    Aggregated(AccumulatorCall("var_pop", DOUBLE, "double", DOUBLE), "var_pop(v / 4)"),
    Aggregated(AccumulatorCall("stddev_samp", DOUBLE, "double", DOUBLE, "odd"), "stddev(v / 4) FILTER (id % 2 = 1)"),
    Aggregated(AccumulatorCall("var_samp", DOUBLE, "double", DOUBLE, distinct=True), "var_samp(DISTINCT v / 4)"),
    Aggregated(AccumulatorCall("covar_pop", DOUBLE, "pair", PAIR), "covar_pop(id, v)"),
    Aggregated(AccumulatorCall("max_by", BINARY, "ranked", BINARY), "max(v * 1000 + coalesce(id, 0))"),
    Aggregated(AccumulatorCall("min_by", BINARY, "ranked", BINARY, "odd"), "min(v * 1000 + id) FILTER (id % 2 = 1)"),
    Aggregated(AccumulatorCall("mode", BIGINT, "v", BIGINT, gather=weighed), "coalesce(sum(v * v * 1000 + 1), 0)"),
    Aggregated(AccumulatorCall("bit_and", BIGINT, "v", BIGINT, "odd"), "bit_and(v) FILTER (id % 2 = 1)"),
    Aggregated(AccumulatorCall("bit_or", BIGINT, "v", BIGINT), "bit_or(v)"),
    Aggregated(AccumulatorCall("bit_xor", BIGINT, "v", BIGINT), "bit_xor(v)"),
    Aggregated(AccumulatorCall("bit_xor", BIGINT, "v", BIGINT, distinct=True), "bit_xor(DISTINCT v)"),
    Aggregated(AccumulatorCall("bool_and", BOOLEAN, "odd", BOOLEAN), "bool_and(id % 2 = 1)"),
    Aggregated(AccumulatorCall("bool_or", BOOLEAN, "odd", BOOLEAN), "bool_or(id % 2 = 1)"),
)


ARRIVALS = tuple(
    Aggregated(AccumulatorCall(function, BINARY, "arrival", BINARY, filter_), "")
    for function in ("first", "last")
    for filter_ in (None, "odd")
)
"""Calls that depend on the order of arrival, which DuckDB does not know."""


def arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    """Return the arguments of the calls, by name."""
    rows = [unpack(payload) for payload in payloads.to_pylist()]
    values = [row[2] for row in rows]
    pairs = [None if v is None or row[0] is None else (row[0], v) for row, v in zip(rows, values, strict=True)]
    ranked = [None if v is None else v * 1000 + (row[0] or 0) for row, v in zip(rows, values, strict=True)]
    return {
        "pair": pa.array(pairs, PAIR),
        "ranked": pa.array([None if r is None else b"\1\x80" + r.to_bytes(7, "big") for r in ranked], BINARY),
        "arrival": pa.array([b"" if v is None else bytes([v]) for v in values], BINARY),
        "v": pa.array(values, BIGINT),
        "decimal": pa.array([None if v is None else Decimal(v) * Decimal("1.01") for v in values], DECIMAL),
        "double": pa.array([None if v is None else v / 4 for v in values], DOUBLE),
        "text": pa.array([None if v is None else TEXTS[v] for v in values], pa.string()),
        "odd": pa.array([None if row[0] is None else row[0] % 2 == 1 for row in rows], BOOLEAN),
    }


def group_of(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return the key column."""
    return binary(pack((unpack(payload)[1],)) for payload in payloads.to_pylist())


def no_group(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return empty group keys."""
    return binary([b""] * len(payloads))


def result(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return the results as packed integers; results of other types are mapped to integers that distinguish them."""
    return binary(pack(tuple(map(whole, row))) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def whole(value: Any) -> int | None:
    """Return a distinct integer for each result: numbers in millionths, texts and bytes read as a number."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return int.from_bytes(value[2:], "big") * 1_000_000
    if isinstance(value, str):
        return int.from_bytes(value.encode()[:7].ljust(8, b"\0"), "big") // 256 + len(value)
    return round(Decimal(value) * 1_000_000) if not isinstance(value, bool) else int(value)


def spec_of(
    aggregates: Sequence[Aggregated], *, retracts: bool = True, is_global: bool = False, ttl_ms: int | None = None
) -> AggregateSpec:
    """Return the spec that computes these aggregates per key, or over all rows."""
    group = no_group if is_global else group_of
    calls = tuple(one.call for one in aggregates)
    return AggregateSpec(calls, arguments, group, result, retracts, is_global, ttl_ms)


def row_of(key: int | None, results: Sequence[Any], *, is_global: bool = False) -> Row:
    """Return the row that the aggregate emits for these results."""
    return (*(() if is_global else (key,)), *map(whole, results))
