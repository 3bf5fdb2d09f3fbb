"""Functions for the bounds of time windows. `service.plan.sql.time_windows` creates them; users cannot call them.

    WINDOW_START(t, size[, offset])             the start of the tumbling window that contains t
    HOP_STARTS(t, slide, size[, offset])        the starts of all hopping windows that contain t, in ascending order
    HOP_STARTS_BY(begin, length, size)          the starts of the windows that contain the pane of this length at begin
    CUMULATE_ENDS(t, step, size[, offset])      the ends of all cumulating windows that contain t, in ascending order
    WINDOW_END(start, size)                     start + size
    WINDOW_TIME(end, by)                        end - by, the last time in the window
    LATER(t, by)                                t + by, limited to the range of timestamps
    SESSION_TIME(t, gap)                        t; fails if t - gap or t + gap is out of range

If a window that contains a row's time extends beyond the range of timestamps, the row fails.

As in Spark and Flink, windows begin at the epoch plus the offset plus or minus a whole number of sizes, slides or
steps. The bounds of a window have the same type as the time, a TIMESTAMP or TIMESTAMP_NTZ. A DATE means midnight of
that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.avro.timestamp_text import FIRST_MOMENT, LAST_MOMENT
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.typed import Typed, nullable
from rowkind.service.plan.scalar.types import LOCAL, TIMESTAMP, family

DAY = 86_400_000_000
"""The microseconds in a day. Every day has the same length, because times are in UTC or have no time zone."""


class WindowStart(exp.Expression, exp.Func):
    """The start of the tumbling window that contains a time."""

    arg_types = {"this": True, "size": True, "offset": False}  # noqa: RUF012 -- sqlglot's convention


class PaneStart(WindowStart):
    """The start of the pane that contains a time.

    Panes are the parts into which windows of length `windows` are divided.
    """

    arg_types = {"this": True, "size": True, "offset": False, "windows": True}  # noqa: RUF012 -- as above


class WindowStarts(exp.Expression, exp.Func):
    """The starts of the hopping windows that contain a time."""

    _sql_names = ["HOP_STARTS"]  # noqa: RUF012 -- as above
    arg_types = {"this": True, "slide": True, "size": True, "offset": False}  # noqa: RUF012 -- as above


class WindowStartsBy(WindowStarts):
    """The starts of the windows that contain the pane of a given length that begins at a given time."""

    _sql_names = ["HOP_STARTS_BY"]  # noqa: RUF012 -- as above
    arg_types = {"this": True, "slide": True, "size": True}  # noqa: RUF012 -- as above


class WindowEnds(exp.Expression, exp.Func):
    """The ends of the cumulating windows that contain a time."""

    _sql_names = ["CUMULATE_ENDS"]  # noqa: RUF012 -- as above
    arg_types = {"this": True, "step": True, "size": True, "offset": False}  # noqa: RUF012 -- as above


class WindowEnd(exp.Expression, exp.Func):
    """The end of a window: its start plus its size."""

    arg_types = {"this": True, "size": True}  # noqa: RUF012 -- as above


class WindowTime(exp.Expression, exp.Func):
    """The last time in a window: its end minus a small amount."""

    arg_types = {"this": True, "by": True}  # noqa: RUF012 -- as above


class Later(exp.Expression, exp.Func):
    """A time that is moved later or earlier, but not beyond the first or last timestamp."""

    arg_types = {"this": True, "by": True}  # noqa: RUF012 -- as above


class SessionTime(exp.Expression, exp.Func):
    """A time, unchanged. Fails if it is less than a session's gap from the first or last timestamp."""

    arg_types = {"this": True, "gap": True}  # noqa: RUF012 -- as above


PANE = "#pane"
"""The name of the column that holds the start of a pane. No query can refer to this name."""

PANES = "#panes"
"""The name of the column that holds the start of a run of consecutive panes."""

NODES = (WindowStart, PaneStart, WindowStarts, WindowStartsBy, WindowEnds, WindowEnd, WindowTime, Later)
"""The nodes whose evaluation cannot fail, except for times near the first or last timestamp."""

_UNITS = (("DAY", DAY), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000), ("MILLISECOND", 1_000))


def interval(micros: int) -> exp.Interval:
    """Return an INTERVAL of this many microseconds, in the largest unit that gives a whole number."""
    unit, length = next((each for each in _UNITS if micros % each[1] == 0), ("MICROSECOND", 1))
    return exp.Interval(this=exp.Literal.string(str(micros // length)), unit=exp.var(unit))


def micros(node: exp.Expr) -> int:
    """Return an INTERVAL's length in microseconds. Raises Refusal for months, which differ in length."""
    months, days, rest = amount(node)
    if months:
        raise Refusal("the length of a window must be in days or shorter units, because months differ in length", node)
    return days * DAY + rest


def of_time(compiler: Compiler, node: exp.Expr) -> tuple[str, Type]:
    """Return DuckDB SQL for a time in microseconds since the epoch, and the type of window bounds. Raises Refusal."""
    return _in_micros(compiler.compile(node), node)


def _in_micros(value: Typed, node: exp.Expr) -> tuple[str, Type]:
    match family(value.type):
        case "timestamp":
            return f"epoch_us({value.sql})", nullable(TIMESTAMP, value)
        case "local":
            return f"epoch_us({value.sql})", nullable(LOCAL, value)
        case "date":
            return f"epoch_us(CAST({value.sql} AS TIMESTAMP))", nullable(TIMESTAMP, value)
        case "string":
            advice = "write CAST(… AS TIMESTAMP)"
        case _:
            advice = "write TIMESTAMP_MILLIS or TIMESTAMP_SECONDS for a number since the epoch"
    raise Refusal(f"a window needs a TIMESTAMP, a TIMESTAMP_NTZ or a DATE, not {value.type.sql}: {advice}", node)


def _floor(time: str, width: int, offset: int) -> str:
    """Return SQL for the greatest `offset + n * width`, where n is an integer, that is not greater than `time`."""
    return f"({time} - ((({time} - {offset}) % {width} + {width}) % {width}))"


def _within(time: str, size: int, *, both: bool = False) -> str:
    """Return SQL for a time that fails if adding `size` to the time would exceed the range of timestamps.

    If `both` is set, the SQL also fails if subtracting `size` would do so.

    Without this check, a window end that is out of range would be an error only in queries that read the end.
    """
    found = f"(({time} + {size + 1}) - {size + 1})"
    # The smallest BIGINT is below the first timestamp that expressions can use.
    less = size + FIRST_MOMENT + 2**63
    return f"(({found} - {less}) + {less})" if both else found


def _offset(node: exp.Expr) -> int:
    offset = node.args.get("offset")
    return 0 if offset is None else micros(offset)


def _moment(sql: str, type_: Type) -> Typed:
    # A CAST to TIMESTAMPTZ would look up the time zone for every row, and take ten times as long.
    make = "make_timestamptz" if family(type_) == "timestamp" else "make_timestamp"
    return Typed(f"{make}({sql})", type_)


def _start(compiler: Compiler, node: WindowStart) -> Typed:
    time, type_ = of_time(compiler, node.this)
    size, windows = micros(node.args["size"]), node.args.get("windows")
    start = _floor(time, size, _offset(node))
    return _moment(_within(start, size) if windows is None else _within(start, micros(windows), both=True), type_)


def _end(compiler: Compiler, node: WindowEnd) -> Typed:
    time, type_ = of_time(compiler, node.this)
    return _moment(f"({time} + {micros(node.args['size'])})", type_)


def _time(compiler: Compiler, node: WindowTime) -> Typed:
    time, type_ = of_time(compiler, node.this)
    return _moment(f"({time} - {micros(node.args['by'])})", type_)


def _later(compiler: Compiler, node: Later) -> Typed:
    value, by = compiler.compile(node.this), micros(node.args["by"])
    if family(value.type) == "date":
        within = f"least(greatest({value.sql}, DATE '1970-01-01' - {_MOST_DAYS}), DATE '1970-01-01' + {_MOST_DAYS})"
        value = replace(value, sql=within)
    time, type_ = _in_micros(value, node.this)
    edge = f"least({time}, {LAST_MOMENT - by})" if by >= 0 else f"greatest({time}, {FIRST_MOMENT - by})"
    return _moment(f"({edge} + {by})", type_)


def _session_time(compiler: Compiler, node: SessionTime) -> Typed:
    time, type_ = of_time(compiler, node.this)
    return _moment(_within(time, micros(node.args["gap"]), both=True), type_)


_MOST_DAYS = LAST_MOMENT // DAY - 1


def _starts(compiler: Compiler, node: WindowStarts) -> Typed:
    time, type_ = of_time(compiler, node.this)
    slide, size = micros(node.args["slide"]), micros(node.args["size"])
    last = _within(_floor(time, slide, _offset(node)), size)
    # The first window starts as many slides before the last window as possible, but still contains the time.
    first = f"({last} - (({size} - 1 - ({time} - {last})) // {slide}) * {slide})"
    return _several(first, f"{last} + 1", slide, type_)


def _starts_by(compiler: Compiler, node: WindowStartsBy) -> Typed:
    time, type_ = of_time(compiler, node.this)
    length, size = micros(node.args["slide"]), micros(node.args["size"])
    return _several(f"({time} - {size - length})", f"{time} + 1", length, type_)


def _ends(compiler: Compiler, node: WindowEnds) -> Typed:
    time, type_ = of_time(compiler, node.this)
    step, size, offset = micros(node.args["step"]), micros(node.args["size"]), _offset(node)
    first = f"({_floor(time, step, offset)} + {step})"
    return _several(first, f"{_floor(time, size, offset)} + {size} + 1", step, type_)


def _several(first: str, before: str, step: int, type_: Type) -> Typed:
    # The elements are integers, which `evaluate` reads as times: DuckDB generates them over ten times faster.
    return Typed(f"range({first}, {before}, {step})", Type("array", items=type_.required, nullable=type_.nullable))


RULES: Mapping[type[exp.Expr], Rule] = {
    WindowStart: (_start, ("this", "size", "offset")),
    PaneStart: (_start, ("this", "size", "offset", "windows")),
    WindowStarts: (_starts, ("this", "slide", "size", "offset")),
    WindowStartsBy: (_starts_by, ("this", "slide", "size")),
    WindowEnds: (_ends, ("this", "step", "size", "offset")),
    WindowEnd: (_end, ("this", "size")),
    WindowTime: (_time, ("this", "by")),
    Later: (_later, ("this", "by")),
    SessionTime: (_session_time, ("this", "gap")),
}
