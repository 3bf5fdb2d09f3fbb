"""Aggregate functions in DuckDB, with the results that they have in Spark.

| function | in DuckDB |
|---|---|
| SUM of integers | HUGEINT, cast to BIGINT |
| SUM of doubles | with compensated errors, because the order of addition differs |
| AVG of decimals | the exact sum, divided and rounded half away from zero |
| MAX_BY, MIN_BY | of rows with the same order, the greatest or the least value |
| FIRST, LAST | any of the values; certain only if all values are equal |
| COLLECT_LIST, LISTAGG | in the order that Rowkind promises |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowkind.avro.schema import Type
from rowkind.operators.aggregate.function import MOMENTS
from rowkind.service.physical.aggregation import AggregateCall
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.logical.node import Types
from rowkind.service.plan.scalar.typed import quoted, text_literal
from rowkind.service.plan.scalar.types import computable, duckdb, family, is_nested
from rowkind.service.python.function import PythonFunction
from rowkind.service.verify.errors import NotComparedError

_PLAIN = {"min": "min", "any_value": "min", "max": "max", "bool_and": "bool_and", "bool_or": "bool_or"}
_BITS = ("bit_and", "bit_or", "bit_xor")
_NOT_IN_DUCKDB = ("skewness", "kurtosis", "mode", "custom")


@dataclass(frozen=True)
class Aggregated:
    """A call in DuckDB, and why its result may depend on the order of arrival."""

    sql: str
    ties: tuple[str, ...] = ()


def aggregate(call: LogicalAggregateCall, types: Types, *, certain: bool, seed: int) -> Aggregated:
    """Translate a call over columns of the given types. Raises NotComparedError.

    If `certain` is set, a result that depends on the order of arrival differs from the result without it. Otherwise,
    `seed` chooses the order.
    """
    function = call.function
    if isinstance(function, PythonFunction):
        raise NotComparedError(f"the job's own aggregate function {function.name}", call.at)
    if function in _NOT_IN_DUCKDB:
        raise NotComparedError(f"{function.upper()} has no equal in DuckDB", call.at)
    arguments = [types[name] for name in call.arguments]
    if any(is_nested(each) or not computable(each) for each in arguments) and function != "count":
        raise NotComparedError(f"{function.upper()} of {arguments[0].sql}", call.at)
    if function in ("first", "last"):
        return Aggregated(
            _arrived(call, certain=certain, seed=seed), (f"{function.upper()} follows the order of arrival",)
        )
    return Aggregated(_computed(call, arguments))


def totals(function: str, value: str, type_: Type, result: Type, after: str, *, tries: bool = False) -> str:
    """Return COUNT, SUM, AVG and the like of a value, followed by the clauses `after`: FILTER and OVER."""
    if function == "count":
        return f"count({value}){after}"
    if function in _PLAIN:
        return f"{_PLAIN[function]}({value}){after}"
    cast = "TRY_CAST" if tries else "CAST"
    if family(type_) == "float":
        # The compensation would turn an infinity into NaN.
        exact = f"{'sum' if function == 'sum' else 'avg'}(CAST({value} AS DOUBLE)){after}"
        kahan = f"fsum(CAST({value} AS DOUBLE)){after}"
        kahan = kahan if function == "sum" else f"{kahan} / count({value}){after}"
        return f"(CASE WHEN isfinite({exact}) THEN {kahan} ELSE {exact} END)"
    if function == "sum":
        return f"{cast}(sum({value}){after} AS {duckdb(result)})"
    if family(type_) == "integer":
        return f"(CAST(sum({value}){after} AS DOUBLE) / count({value}){after})"
    return _average(f"sum({value}){after}", f"count({value}){after}", type_, result, cast)


def _average(total: str, count: str, type_: Type, result: Type, cast: str) -> str:
    """Return the average of decimals, rounded half away from zero, computed from whole numbers."""
    whole = (
        f"CAST(replace(CAST({total} AS VARCHAR), '.', '') AS HUGEINT)" if type_.scale else f"CAST({total} AS HUGEINT)"
    )
    more = f"CAST(1{'0' * (result.scale - type_.scale)} AS HUGEINT)"
    digits = f"CAST((2 * abs({whole}) * {more} + {count}) // (2 * {count}) AS VARCHAR)"
    digits = f"repeat('0', greatest(0, {result.scale + 1} - length({digits}))) || {digits}"
    text = f"left({digits}, -{result.scale}) || '.' || right({digits}, {result.scale})" if result.scale else digits
    sign = f"CASE WHEN {whole} < 0 THEN '-' ELSE '' END"
    return f"{cast}(CASE WHEN {count} > 0 THEN {sign} || {text} END AS {duckdb(result)})"


def _filters(*conditions: str | None) -> str:
    found = [each for each in conditions if each is not None]
    return f" FILTER (WHERE {' AND '.join(found)})" if found else ""


def _there(name: str) -> str:
    return f"{quoted(name)} IS NOT NULL"


def _computed(call: LogicalAggregateCall, arguments: Sequence[Type]) -> str:
    where = None if call.filter is None else quoted(call.filter)
    names = [quoted(name) for name in call.arguments]
    first = names[0] if names else "*"
    match call.function:
        case "count" if call.distinct:
            value = first if len(names) == 1 else f"row({', '.join(names)})"
            return f"count(DISTINCT {value}){_filters(where, *map(_there, call.arguments))}"
        case "sum" | "avg" if call.distinct:
            return totals(str(call.function), f"DISTINCT {first}", arguments[0], call.type, _filters(where))
        case "count" | "sum" | "avg" | "min" | "max" | "any_value" | "bool_and" | "bool_or":
            type_ = arguments[0] if arguments else call.type
            return totals(str(call.function), first, type_, call.type, _filters(where), tries=call.tries)
        case "min_by" | "max_by":
            value, by = call.arguments
            down = "DESC" if call.function == "max_by" else "ASC"
            order = f"{quoted(by)} {down}, {quoted(value)} {down} NULLS {'LAST' if down == 'DESC' else 'FIRST'}"
            return f"first({quoted(value)} ORDER BY {order}){_filters(where, _there(by))}"
        case "collect_list" | "collect_set" | "listagg":
            return _listed(call, where)
        case "percentile_cont" | "percentile_disc":
            return _percentile(call, where)
    function = str(call.function)
    if function in _BITS:
        return f"{function}({first}){_filters(where)}"
    assert function in MOMENTS, f"{function} is an aggregate function"
    numbers = ", ".join(f"CAST({name} AS DOUBLE)" for name in names)
    found = f"{function}({numbers}){_filters(where, *map(_there, call.arguments))}"
    return f"(CASE WHEN isnan({found}) THEN NULL ELSE {found} END)"


def _listed(call: AggregateCall, where: str | None) -> str:
    (name,) = call.arguments[:1]
    value, order = quoted(name), []
    for each in call.order:
        assert each.column is not None, "gathered values are ordered by a column"
        nulls = "FIRST" if each.nulls_first else "LAST"
        order.append(f"{quoted(each.column)} {'DESC' if each.descending else 'ASC'} NULLS {nulls}")
    if not any(each.column == name for each in call.order):
        order.append(f"{value} ASC")
    by = ", ".join(order)
    clauses = _filters(where, _there(name))
    if call.function == "listagg":
        distinct = "DISTINCT " if call.distinct else ""
        return f"string_agg({distinct}{value}, {text_literal(call.constants[0])} ORDER BY {by}){clauses}"
    distinct = "DISTINCT " if call.function == "collect_set" or call.distinct else ""
    return f"coalesce(list({distinct}{value} ORDER BY {by}){clauses}, [])"


def _percentile(call: LogicalAggregateCall, where: str | None) -> str:
    if any(each.descending for each in call.order):
        raise NotComparedError("a percentile in descending order", call.at)
    (name,) = call.arguments[:1]
    several = call.type.kind == "array"
    fractions = f"[{', '.join(call.constants)}]" if several else call.constants[0]
    distinct = "DISTINCT " if call.distinct else ""
    value = f"CAST({quoted(name)} AS DOUBLE)" if call.function == "percentile_cont" else quoted(name)
    function = "quantile_cont" if call.function == "percentile_cont" else "quantile_disc"
    return f"CAST({function}({distinct}{value}, {fractions}){_filters(where, _there(name))} AS {duckdb(call.type)})"


def _arrived(call: AggregateCall, *, certain: bool, seed: int) -> str:
    """Return any value; if `certain` is set, the greatest, or NULL unless all values are equal."""
    value = quoted(call.arguments[0])
    after = _filters(None if call.filter is None else quoted(call.filter))
    if seed:
        return f"first({value} ORDER BY hash({value}, {seed})){after}"
    if not certain:
        return f"min({value}){after}"
    return f"(CASE WHEN count(*){after} = count({value}){after} THEN max({value}){after} END)"
