"""Window functions with ORDER BY or a frame, which may read only a part of their partition.

    SUM(v) OVER (PARTITION BY k ORDER BY t)                        from the first row to the last of the row's peers
    AVG(v) OVER (… ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)       a frame of rows
    MAX(v) OVER (… RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)      a range of values
    LAG(v, 2, 0), LEAD(v), FIRST_VALUE(v), LAST_VALUE(v), NTH_VALUE(v, 2) OVER (… ORDER BY t)
    LAST_VALUE(v) IGNORE NULLS OVER (… ORDER BY t)                 over the rows whose value is not NULL
    NTILE(4), PERCENT_RANK(), CUME_DIST() OVER (… ORDER BY t)      the row's position in its whole partition

Calls with the same partition and order share one Over node. Each combination of partition and order adds one Over on
top of the others. If the last ORDER BY column is the order of arrival, rows have no peers. Then RANGE up to the current
row is the same as ROWS up to the current row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor
from typing import Protocol

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.over.framing import Frame, OverFunction, Placing, code
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.calls import LogicalWindowCall
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.scalar.types import BOOLEAN, DOUBLE, INT, family
from rowkind.service.plan.sql.aggregates import aggregate_call, aggregate_type, bare, is_known

_PICKS: Mapping[type[exp.Expr], OverFunction] = {
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.FirstValue: "first_value",
    exp.First: "first_value",
    exp.LastValue: "last_value",
    exp.Last: "last_value",
    exp.NthValue: "nth_value",
}
_ADDED: Mapping[str, OverFunction] = {
    "count": "count", "sum": "sum", "avg": "avg", "bool_and": "bool_and", "bool_or": "bool_or", "min": "min",
    "max": "max",
}  # fmt: skip
_WHOLE_SPEC = ("UNBOUNDED", "PRECEDING", "UNBOUNDED", "FOLLOWING")
_DAY = 86_400_000_000
_MOST_DIGITS = 18
"""The maximum number of digits of decimals that always fit into 64 bits."""
_LARGEST = 1 << 62
_PLACES: Mapping[type[exp.Expr], Placing] = {
    exp.Ntile: "ntile",
    exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist",
}
_NUMERIC = ("integer", "decimal", "float")


class RowColumns(Protocol):
    """Returns the columns of the rows below that hold given expressions."""

    def value(self, node: exp.Expr) -> str:
        """Return the column that holds an expression. Raises Refusal."""

    def type(self, node: exp.Expr) -> Type:
        """Return the type of an expression. Raises Refusal."""


def is_over(window: exp.Window) -> bool:
    """Return whether a window function depends on a frame or on the positions of rows in their partition."""
    function = bare(window.this)
    if isinstance(function, exp.Lag | exp.Lead | exp.NthValue) or type(function) in _PLACES:
        return True
    if not (is_known(function) or type(function) in _PICKS):
        return False
    return bool(window.args.get("order")) or not _is_whole(window.args.get("spec"))


def check_over(window: exp.Window) -> None:
    """Refuse a window function that is not supported or makes no sense. Raises Refusal."""
    function, spec, name = bare(window.this), window.args.get("spec"), called(window)
    if window.find(exp.IgnoreNulls) and type(function) not in _PICKS:
        raise Refusal("IGNORE NULLS is allowed only with LAG, LEAD, FIRST_VALUE, LAST_VALUE and NTH_VALUE", window)
    if function.args.get("from_first") is not None:
        raise Refusal(f"{name} always counts from the first row of the frame: remove FROM FIRST or FROM LAST", window)
    if function.find(exp.Distinct):
        raise Refusal(
            f"{name}(DISTINCT …) OVER (… ORDER BY …) is not supported: select the first row of each value by "
            "ROW_NUMBER in a derived table",
            window,
        )
    order = window.args.get("order")
    if not order:
        raise Refusal(f"{name}(…) OVER (…) needs ORDER BY here, because it depends on the order of the rows", window)
    if spec is None:
        return
    if isinstance(function, exp.Lag | exp.Lead) or type(function) in _PLACES:
        raise Refusal(f"{name} cannot have ROWS or RANGE: remove it", spec)
    if spec.args.get("exclude"):
        raise Refusal("EXCLUDE is not supported, as in Spark: remove it, and subtract the excluded rows", spec)
    if str(spec.args.get("kind")).upper() not in ("ROWS", "RANGE"):
        raise Refusal(
            "GROUPS frames are not supported, as in Spark: write ROWS, or RANGE, which includes rows with "
            "the same order",
            spec,
        )


def called(node: exp.Expr) -> str:
    """Return the function name of a call, with or without OVER."""
    function = bare(node.this if isinstance(node, exp.Window) else node)
    return word(function) if isinstance(function, exp.Func) else "this"


def _is_whole(spec: exp.WindowSpec | None) -> bool:
    edges = ("start", "start_side", "end", "end_side")
    return spec is None or tuple(spec.args.get(each) for each in edges) == _WHOLE_SPEC


@dataclass(frozen=True)
class OrderedWindow:
    """A window function whose partition, order and call refer only to columns."""

    window: exp.Window
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    call: LogicalWindowCall

    @classmethod
    def of(
        cls, window: exp.Window, partition: tuple[str, ...], order: tuple[OrderColumn, ...], rows: RowColumns
    ) -> OrderedWindow:
        """Translate a window function so that it refers only to columns of the rows. Raises Refusal."""
        arrival = [number for number, each in enumerate(order) if each.column is None]
        if arrival:
            order = order[: arrival[0] + 1]
            if order[-1].descending:
                raise Refusal(
                    "the order of arrival can only be ascending: write ORDER BY PROCTIME()", window.args["order"]
                )
        function = bare(window.this)
        if type(function) in _PICKS:
            call = _picked(window, function, rows, arrives=bool(arrival))
        elif type(function) in _PLACES:
            call = _placed(window, function)
        else:
            call = _aggregated(window, rows, arrives=bool(arrival))
        if call.frame.kind == "range" and call.frame.measured and len(order) != 1:
            raise Refusal("RANGE with a distance needs ORDER BY with exactly one column", window.args["order"])
        return cls(window, partition, order, call)


def stacked(node: LogicalNode, overs: Mapping[str, OrderedWindow]) -> LogicalNode:
    """Return the rows with a column for each window function. `overs` maps column names to window functions."""
    alike: dict[tuple[tuple[str, ...], tuple[OrderColumn, ...]], dict[str, LogicalWindowCall]] = {}
    at: dict[tuple[tuple[str, ...], tuple[OrderColumn, ...]], exp.Expr] = {}
    for name, over in overs.items():
        alike.setdefault((over.partition, over.order), {})[name] = over.call
        at.setdefault((over.partition, over.order), over.window)
    for (partition, order), calls in alike.items():
        node = LogicalOver(LogicalInput(node), partition, order, calls, at[partition, order])
    return node


def _aggregated(window: exp.Window, rows: RowColumns, *, arrives: bool) -> LogicalWindowCall:
    asked = aggregate_call(window.this)
    function = _ADDED.get(str(asked.function))
    if function is None or asked.distinct:
        raise Refusal(
            f"{called(window)}(…) OVER is supported only over the whole partition: remove ORDER BY, or use COUNT, "
            "SUM, AVG, MIN or MAX",
            window,
        )
    types = tuple(map(rows.type, asked.arguments))
    filter_ = None
    if asked.filter is not None:
        if family(rows.type(asked.filter)) != family(BOOLEAN):
            raise Refusal("FILTER takes a condition", asked.filter)
        filter_ = rows.value(asked.filter)
    return LogicalWindowCall(
        function,
        tuple(map(rows.value, asked.arguments)),
        aggregate_type(asked, types, window.this),
        _frame(window, rows, arrives=arrives),
        filter_,
        tries=asked.tries,
        at=window,
    )


def _picked(window: exp.Window, function: exp.Expr, rows: RowColumns, *, arrives: bool) -> LogicalWindowCall:
    picks, value, skips = _PICKS[type(function)], bare(function.this), window.find(exp.IgnoreNulls) is not None
    type_ = rows.type(value)
    if family(type_) == "null":
        raise Refusal(f"{called(function)} cannot use NULL, because it has no type: write a CAST", value)
    arguments, nth = [rows.value(value)], 1
    if picks in ("lag", "lead"):
        nth = _whole_number(function, "offset", 1, least=-_LARGEST)
        away = -nth if picks == "lag" else nth
        frame = Frame("rows", away, away)
        if (default := function.args.get("default")) is not None and not isinstance(default, exp.Null):
            families = family(rows.type(default)), family(type_)
            if families[0] != families[1] and not all(each in _NUMERIC for each in families):
                raise Refusal(f"the default must have type {type_.required.sql}, like the value: write a CAST", default)
            cast = exp.cast(default.copy(), type_.required.sql.removesuffix(" NOT NULL"), dialect="spark")
            same = rows.type(default).required == type_.required
            arguments.append(rows.value(default if same else cast))
        asked: tuple[OverFunction, Frame, int] = picks, frame, 1
        if skips and away:
            asked = _past_nulls(away)
            _check_kept(function, type_, asked[1])
        return LogicalWindowCall(
            asked[0],
            tuple(arguments),
            type_.as_nullable(),
            asked[1],
            nth=asked[2],
            skips=skips and away != 0,
            at=window,
        )
    if picks == "nth_value":
        nth = _whole_number(function, "offset", None, least=1)
    frame = _frame(window, rows, arrives=arrives)
    if picks != "last_value" or skips:
        _check_kept(function, type_, frame)
    return LogicalWindowCall(picks, tuple(arguments), type_.as_nullable(), frame, nth=nth, skips=skips, at=window)


def _past_nulls(away: int) -> tuple[OverFunction, Frame, int]:
    """Return the function, frame and offset that compute LAG or LEAD with IGNORE NULLS."""
    if away > 0:
        return "nth_value", Frame("rows", 1, None), away
    # The value before a row is the last value in the frame. For LAG by several values, `lag` carries that many values
    # over from row to row.
    frame = Frame("rows", None, -1)
    return ("last_value", frame, 1) if away == -1 else ("lag", frame, -away)


def _check_kept(function: exp.Expr, type_: Type, frame: Frame) -> None:
    """Refuse a value of a type that cannot be stored with later rows. Raises Refusal."""
    if frame.start is None and not type_.orderable:
        raise Refusal(
            f"{called(function)} cannot use type {type_.sql} here: use one of the value's fields", function.this
        )


def _placed(window: exp.Window, function: exp.Expr) -> LogicalWindowCall:
    places, tiles = _PLACES[type(function)], 1
    if places == "ntile":
        tiles = _whole_number(function, "this", None, least=1)
    elif function.expressions:
        raise Refusal(f"{called(function)}() takes no arguments", window)
    type_ = INT if places == "ntile" else DOUBLE
    return LogicalWindowCall(places, (), type_, Frame("rows", None, None), nth=tiles, at=window)


def _whole_number(function: exp.Expr, name: str, missing: int | None, *, least: int) -> int:
    node = function.args.get(name)
    if node is None and missing is not None:
        return missing
    bare = None if node is None else node.unnest()
    turn = -1 if isinstance(bare, exp.Neg) else 1
    literal = bare.this if isinstance(bare, exp.Neg) else bare
    if not isinstance(literal, exp.Literal) or not literal.is_int or turn * int(literal.name) < least:
        raise Refusal(f"{called(function)} needs an integer literal here", node or function)
    return turn * int(literal.name)


def _frame(window: exp.Window, rows: RowColumns, *, arrives: bool) -> Frame:
    """Return a window's frame. Raises Refusal."""
    if (spec := window.args.get("spec")) is None:
        return Frame("rows" if arrives else "range", None, 0)
    kind = str(spec.args["kind"]).upper()
    edges: list[Decimal | None] = []
    for side, other in (("start", "FOLLOWING"), ("end", "PRECEDING")):
        value, direction = spec.args.get(side), str(spec.args.get(f"{side}_side")).upper()
        if value is None or str(value).upper() == "CURRENT ROW":
            edges.append(Decimal(0))
        elif str(value).upper() == "UNBOUNDED":
            if direction == other:
                raise Refusal(f"a frame cannot {side} with UNBOUNDED {other}", spec)
            edges.append(None)
        else:
            distance = _distance(window, value, kind, rows)
            edges.append(-distance if direction == "PRECEDING" else distance)
    if None not in edges and edges[0] > edges[1]:  # type: ignore[operator] # neither is None
        raise Refusal("this frame ends before it starts", spec)
    # The ordered values are whole numbers, so rounding a fractional bound inward does not change the frame.
    start, end = (None if edge is None else rounded(edge) for edge, rounded in zip(edges, (ceil, floor), strict=True))
    if kind == "ROWS" or (arrives and start in (None, 0) and end in (None, 0)):
        return Frame("rows", start, end)
    if arrives:
        raise Refusal(
            "RANGE with a distance is not supported for the order of arrival: write ROWS, or order by a time", spec
        )
    return Frame("range", start, end)


def _distance(window: exp.Window, node: exp.Expr, kind: str, rows: RowColumns) -> Decimal:
    """Return a frame bound's distance in the unit in which the ordered values are whole numbers. Raises Refusal.

    The unit is 1 µs for dates and times, and the last digit for a DECIMAL. The distance for a DOUBLE is returned as its
    code (`operators.over.framing.code`).
    """
    bare = node.unnest()
    number = Decimal(bare.name) if isinstance(bare, exp.Literal) and bare.is_number else None
    if not isinstance(bare, exp.Interval) and (number is None or (kind == "ROWS" and not bare.is_int)):
        raise Refusal("the bound of a frame must be a literal number (an integer for ROWS) or an INTERVAL", node)
    if kind == "ROWS" and number is not None:
        return number
    value = window.args["order"].expressions[0].this
    type_ = rows.type(value)
    of = family(type_)
    if isinstance(bare, exp.Interval):
        months, days, micros = amount(bare)
        if of not in ("date", "timestamp", "local"):
            raise Refusal(f"an INTERVAL can be a bound only if ORDER BY is a time, not {type_.sql}", value)
        if months or days < 0 or micros < 0:
            raise Refusal(
                "the bound of a frame must be a non-negative INTERVAL without months, which differ in length: write "
                "days, hours, minutes or seconds",
                node,
            )
        return Decimal(days * _DAY + micros)
    assert number is not None, "it is a number or an INTERVAL"
    match of:
        case "integer":
            return number
        case "date" if bare.is_int:
            return number * _DAY
        case "decimal" if type_.precision <= _MOST_DIGITS:
            return number.scaleb(type_.scale)
        case "float" if type_.sql == DOUBLE.sql:
            return Decimal(code(float(number)))
    raise Refusal(
        f"RANGE with a distance needs an integer, a DECIMAL of up to {_MOST_DIGITS} digits, a DOUBLE, a date "
        f"with whole days, or a time with an INTERVAL, but {show(value)} is {type_.sql}: order by a CAST of it",
        value,
    )
