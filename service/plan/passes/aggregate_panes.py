"""Aggregate overlapping windows from panes, the intervals into which the windows' edges divide time.

    HOP of 1 hour by 1 minute          SUM(x) of each minute, then of every 10 minutes, then of 6 of these sums
    CUMULATE by 1 minute to 1 hour     SUM(x) of each minute, then the sum of up to 60 minutes

Without panes, every row is repeated for each of its windows, 60 times here. All rows of a pane are in the same windows,
so only the pane's aggregate must be repeated. This aggregate is an accumulator (`passes.split_distinct`), because a sum
would be rounded twice. If a pane is in many HOP windows, panes are first aggregated into runs of consecutive panes,
with one run starting at each pane. Windows are then aggregated from consecutive runs. In the example, a pane is in 10
runs, and each run is in 6 windows, which makes 16 repetitions instead of 60. If a call needs the rows of the whole
window, rows are still repeated for each window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, isqrt

from sqlglot import exp

from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, filtered
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.passes.split_distinct import Steps, between, in_two_steps
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import (
    PANE,
    PANES,
    PaneStart,
    WindowEnds,
    WindowStarts,
    WindowStartsBy,
    interval,
    micros,
)
from rowkind.service.plan.scalar.types import TIMESTAMP
from rowkind.service.plan.traits.column_meanings import meaning
from rowkind.service.plan.tree import bottom_up
from rowkind.service.python.function import PythonFunction

_MANY = 24
"""The smallest number of windows per pane for which runs of panes pay off. Runs need one more aggregate."""

_LEAST = 4
"""The smallest number of windows per row for which panes pay off, and the largest number of panes per slide. Panes need
one more aggregate."""


def aggregate_panes(query: Query) -> Query:
    """Aggregate panes first, and overlapping windows from the panes.

    >>> example(aggregate_panes, '''
    ...     SELECT window_start, COUNT(*) AS n
    ...     FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTE, INTERVAL '1' HOUR))
    ...     GROUP BY window_start''')
    Aggregate group=[bids.window_start] calls=[n: count()]
      Project …
        Project …, bids.window_time: WINDOW_TIME(bids.window_end, INTERVAL '1' MILLISECOND)
          Project …, bids.window_end: WINDOW_END(bids.window_start, INTERVAL '1' HOUR)
            Expand array=HOP_STARTS(bids.at, INTERVAL '10' MINUTE, INTERVAL '1' HOUR) place=bids.#window
                elements=[bids.window_start: 0]
              Scan bids
    becomes
    Aggregate group=[bids.window_start] calls=[n: count(n#first) stage=second]
      Project …
        Expand array=HOP_STARTS(bids.#pane, INTERVAL '10' MINUTE, INTERVAL '1' HOUR) place=bids.#window
            elements=[bids.window_start: 0]
          Aggregate group=[bids.#pane] calls=[n#first: count() stage=first]
            Project bids.#pane: PANE_START(bids.at, INTERVAL '10' MINUTE, INTERVAL '1' HOUR)
              Scan bids
    """
    return replace(query, root=bottom_up(query.root, _visit))


@dataclass(frozen=True)
class _Windows:
    """The input of an aggregate: rows in windows, with the conditions on the windows and on the rows.

    `edge` is the column that distinguishes the windows of a row: the window's start or, for CUMULATE, its end.
    """

    expand: LogicalExpand
    array: WindowStarts | WindowEnds
    edge: str
    on_windows: tuple[exp.Expr, ...]
    on_rows: tuple[exp.Expr, ...]

    def column(self, name: str) -> str:
        """Return the full name of a column under the same path as the edge."""
        return f"{self.edge.rpartition('.')[0]}.{name}"


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate):
        return node
    windows = _windows(node.input.input)
    if windows is None:
        return node
    below = columns(node.input.input)
    split = ((name, in_two_steps(name, call, below)) for name, call in node.calls.items())
    steps = {name: each for name, each in split if each is not None}
    own = any(isinstance(call.function, PythonFunction) for call in node.calls.values())
    asked = [name for call in node.calls.values() for name in call.reads]
    meanings = {name: meaning(node.input.input, resolved(name)) for name in (*node.group, *asked)}
    of_windows = {name for name in meanings if reads(meanings[name]) & {windows.edge, windows.expand.place}}
    if own or len(steps) < len(node.calls) or of_windows & set(asked) or not of_windows:
        return node
    if any(reads(meanings[name]) != {windows.edge} for name in of_windows):
        return node
    return _in_panes(node, windows, meanings, steps)


def _windows(node: LogicalNode) -> _Windows | None:
    """Return the windows below filters and projections; None if panes do not pay off or cannot be used.

    Panes cannot be used if a condition reads both the window and other columns of the row.
    """
    conditions: list[exp.Expr] = []
    below = node
    while isinstance(below, LogicalFilter) or (isinstance(below, LogicalProject) and below.view is None):
        if isinstance(below, LogicalFilter):
            conditions += [meaning(below.input, each) for each in below.conjuncts]
        below = below.input
    if not isinstance(below, LogicalExpand) or not isinstance(array := below.array, WindowStarts | WindowEnds):
        return None
    ((edge, _),) = below.elements.items()
    made = {edge, below.place}
    on_windows = tuple(each for each in conditions if reads(each) <= {edge})
    on_rows = tuple(each for each in conditions if not reads(each) & made)
    size, slide = micros(array.args["size"]), micros(_slide(array))
    # If the size is not a multiple of the slide, panes may be very short.
    many = size >= _LEAST * slide and slide <= _LEAST * gcd(size, slide)
    whole = len(on_windows) + len(on_rows) == len(conditions) and not set(on_windows) & set(on_rows)
    return _Windows(below, array, edge, on_windows, on_rows) if many and whole else None


def _slide(array: WindowStarts | WindowEnds) -> exp.Expr:
    """Return the distance between consecutive windows of a row."""
    slide: exp.Expr = array.args["slide" if isinstance(array, WindowStarts) else "step"]
    return slide


def _run(array: WindowStarts | WindowEnds) -> int:
    """Return the length of the runs of panes from which windows are aggregated, in microseconds; 0 without runs."""
    size, slide = micros(array.args["size"]), micros(_slide(array))
    if isinstance(array, WindowEnds) or size % slide or size < _MANY * slide:
        return 0
    panes = size // slide
    # Of all ways to write a number as a product of two factors, the sum is smallest if the factors are closest.
    runs = next(each for each in range(isqrt(panes), 0, -1) if panes % each == 0)
    return size // runs if 2 * (runs + panes // runs) <= panes else 0


def _in_panes(
    node: LogicalAggregate, windows: _Windows, meanings: Mapping[str, exp.Expr], steps: Mapping[str, Steps]
) -> LogicalAggregate:
    """Return the aggregate over panes.

    `steps` contains the two steps of each call, and `meanings` the meaning of each column that the aggregate reads.
    """
    of_rows = {name: each for name, each in meanings.items() if windows.edge not in reads(each)}
    plain = tuple(name for name in node.group if name in of_rows)
    of_windows = tuple(name for name in node.group if name not in of_rows)
    by_pane, calls = _by_pane(node, windows, of_rows, steps)
    # All panes and windows with the same values in the other group columns are in one shard, so nothing is shuffled
    # between the two steps. If panes were spread, each shard would have only one or two panes of a window. Without
    # other columns, all rows would be in a single shard, so panes are spread in that case.
    edges = [columns(by_pane)[windows.column(PANE)], *(columns(node.input.input)[name] for name in of_windows)]
    together = bool(plain) and all(each == TIMESTAMP for each in edges)
    by_pane = replace(by_pane, apart=int(together))
    array, parts = windows.array.copy(), by_pane
    array.set("this", resolved(windows.column(PANE)))
    if length := _run(windows.array):
        panes = windows.column(PANES)
        array.set("size", interval(length))
        runs = replace(windows.expand, input=by_pane, array=array, elements={panes: 0}, at=array)
        parts, calls = _by_run(by_pane, runs, calls)
        array = WindowStartsBy(this=resolved(panes), slide=interval(length), size=windows.array.args["size"].copy())
    expand = filtered(replace(windows.expand, input=parts, array=array, at=array), windows.on_windows)
    groups = {name: resolved(name) if name in of_rows else meanings[name] for name in node.group}
    return replace(
        node,
        input=LogicalInput(LogicalProject(expand, {**groups, **{name: resolved(name) for name in parts.calls}})),
        group=(*plain, *of_windows),
        calls=calls,
        apart=len(of_windows) if together else 0,
    )


def _by_pane(
    node: LogicalAggregate, windows: _Windows, of_rows: Mapping[str, exp.Expr], steps: Mapping[str, Steps]
) -> tuple[LogicalAggregate, Mapping[str, LogicalAggregateCall]]:
    """Return the aggregate that computes the calls' first steps per pane, and the calls of the second steps.

    `of_rows` are the meanings of the columns that do not depend on the window, by name.
    """
    pane, array = windows.column(PANE), windows.array
    size, offset = array.args["size"], array.args.get("offset")
    width = gcd(micros(_slide(array)), micros(size))
    rest = 0 if offset is None else micros(offset) % width
    moved = {"offset": interval(rest)} if rest else {}
    start = PaneStart(this=array.this.copy(), size=interval(width), windows=size.copy(), **moved)
    rows = filtered(windows.expand.input, windows.on_rows)
    first, second = _parted(steps)
    group = (*(name for name in node.group if name in of_rows), pane)
    panes = LogicalInput(LogicalProject(rows, {**of_rows, pane: start}))
    return LogicalAggregate(panes, group, first, is_global=False, at=node.at), second


def _by_run(
    by_pane: LogicalAggregate, runs: LogicalExpand, calls: Mapping[str, LogicalAggregateCall]
) -> tuple[LogicalAggregate, Mapping[str, LogicalAggregateCall]]:
    """Return the aggregate of runs of panes, and the calls that aggregate runs instead of panes."""
    (run,) = runs.elements
    first, second = _parted({name: between(call.arguments[0], call) for name, call in calls.items()})
    group = (*by_pane.group[:-1], run)
    rows = LogicalProject(runs, {name: resolved(name) for name in (*group, *by_pane.calls)})
    return replace(by_pane, input=LogicalInput(rows), group=group, calls=first), second


def _parted(
    steps: Mapping[str, Steps],
) -> tuple[Mapping[str, LogicalAggregateCall], Mapping[str, LogicalAggregateCall]]:
    """Return the first steps by the name of their result column, and the second steps by the name of their call."""
    firsts = {partial: first for partial, first, _ in steps.values()}
    return firsts, {name: second for name, (*_, second) in steps.items()}
