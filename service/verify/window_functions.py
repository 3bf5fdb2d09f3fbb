"""Window functions in DuckDB, with the results that they have in Spark."""

from __future__ import annotations

from collections.abc import Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.calls import LogicalWindowCall
from rowkind.service.plan.logical.node import Types
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.scalar.types import computable, duckdb, family, is_nested
from rowkind.service.verify.aggregates import totals
from rowkind.service.verify.errors import NotComparedError

_TOTALS = ("count", "sum", "avg", "min", "max", "bool_and", "bool_or")
_NUMBERS = ("row_number", "rank", "dense_rank", "ntile")
_PLACES = ("percent_rank", "cume_dist")
_MICROS = ("timestamp", "local")


def window_function(call: LogicalWindowCall, types: Types, by: str, order: Sequence[str], ordered: Type | None) -> str:
    """Translate a call. `by` is the PARTITION BY, `order` has the terms of the ORDER BY.

    `ordered`: the type of the ORDER BY column if there is only one. Raises NotComparedError.
    """
    names = [quoted(name) for name in call.arguments]
    terms = f"ORDER BY {', '.join(order)}" if order else ""
    window = f" OVER ({by} {terms})"
    framed = f" OVER ({by} {terms} {_frame(call, ordered)})"
    where = "" if call.filter is None else f" FILTER (WHERE {quoted(call.filter)})"
    if call.function in _TOTALS:
        type_ = types[call.arguments[0]] if call.arguments else call.type
        if call.arguments and (is_nested(type_) or not computable(type_)):
            raise NotComparedError(f"{call.function.upper()} of {type_.sql}", call.at)
        return totals(call.function, names[0] if names else "*", type_, call.type, where + framed, tries=call.tries)
    if where:
        raise NotComparedError(f"{call.function.upper()} with FILTER", call.at)
    skips = " IGNORE NULLS" if call.skips else ""
    match call.function:
        case "lag" | "lead":
            value, *default = names
            return f"{call.function}({', '.join([value, str(call.nth), *default])}{skips}){window}"
        case "first_value" | "last_value":
            return f"{call.function}({names[0]}{skips}){framed}"
        case "nth_value":
            return f"nth_value({names[0]}, {call.nth}{skips}){framed}"
        case "ntile":
            return f"CAST(ntile({call.nth}){window} AS INTEGER)"
    if call.function in _PLACES:
        return f"{call.function}(){window}"
    assert call.function in _NUMBERS, f"{call.function} is a window function"
    return f"CAST({call.function}(){window} AS {duckdb(call.type)})"


def _frame(call: LogicalWindowCall, ordered: Type | None) -> str:
    frame = call.frame
    unit = "{}"
    if frame.kind == "range" and frame.measured:
        of = None if ordered is None else family(ordered)
        if of in _MICROS:
            unit = "to_microseconds({})"
        elif of != "integer":
            raise NotComparedError("RANGE with a distance of this type", call.at)
    start, end = _edge(frame.start, unit, "PRECEDING"), _edge(frame.end, unit, "FOLLOWING")
    return f"{frame.kind.upper()} BETWEEN {start} AND {end}"


def _edge(distance: int | None, unit: str, open_: str) -> str:
    if distance is None:
        return f"UNBOUNDED {open_}"
    if distance == 0:
        return "CURRENT ROW"
    return f"{unit.format(abs(distance))} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"
