"""Aggregate overlapping windows from panes, the pieces into which the windows' edges cut time.

    HOP by 1 minute of 1 hour          SUM(x) of each minute, then of each 10 minutes, then of 6 of these
    CUMULATE by 1 minute to 1 hour     SUM(x) of each minute, then the sum of up to 60 minutes

Without panes, every row is repeated for each of its windows, 60 times here. The rows of a pane are in the same windows,
so only their aggregate has to be repeated. It is not a sum, which would be rounded twice, but an accumulator
(`passes.split_distinct`). If a pane is in many HOP windows, panes are first aggregated into runs of panes, one run from
each pane on, and windows from consecutive runs. A pane is then in 10 runs and each run in 6 windows, which is 16
instead of 60. If a call needs the rows of the whole window, rows are still repeated for each window.
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
"""In how many windows a pane must be for runs of panes to pay off: they need one more aggregate."""

_LEAST = 4
"""In how many windows a row must be for panes to pay off, and how many panes a slide may have: panes need one more
aggregate."""


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
    """The input of an aggregate: the windows of rows, and the conditions on the windows and on the rows.

    `edge` is the column that distinguishes the windows of a row: the start of each or, for CUMULATE, the end.
    """

    expand: LogicalExpand
    array: WindowStarts | WindowEnds
    edge: str
    on_windows: tuple[exp.Expr, ...]
    on_rows: tuple[exp.Expr, ...]

    def column(self, name: str) -> str:
        """Return the name of a column next to the edge."""
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
    """Return the windows below filters and projections, if rows are in many and conditions are on one of the two."""
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
    """Return the distance between the windows of a row."""
    slide: exp.Expr = array.args["slide" if isinstance(array, WindowStarts) else "step"]
    return slide


def _run(array: WindowStarts | WindowEnds) -> int:
    """Return the length of the runs of panes from which windows are aggregated, in microseconds; 0 for no runs."""
    size, slide = micros(array.args["size"]), micros(_slide(array))
    if isinstance(array, WindowEnds) or size % slide or size < _MANY * slide:
        return 0
    panes = size // slide
    # Of all ways to write a number as a product of two, the sum is least if the two are closest.
    runs = next(each for each in range(isqrt(panes), 0, -1) if panes % each == 0)
    return size // runs if 2 * (runs + panes // runs) <= panes else 0


def _in_panes(
    node: LogicalAggregate, windows: _Windows, meanings: Mapping[str, exp.Expr], steps: Mapping[str, Steps]
) -> LogicalAggregate:
    """Return the aggregate over panes. `steps` are its calls in two steps, `meanings` those of its input's columns."""
    of_rows = {name: each for name, each in meanings.items() if windows.edge not in reads(each)}
    plain = tuple(name for name in node.group if name in of_rows)
    of_windows = tuple(name for name in node.group if name not in of_rows)
    by_pane, calls = _by_pane(node, windows, of_rows, steps)
    # All panes and windows with the same other columns are in one shard, so nothing is shuffled between the two steps.
    # Spread over shards, a window would be aggregated from one or two panes in each. Without other columns, all rows
    # would be in one shard, so they are spread.
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
    """Return the first steps of the calls by pane, and the second steps. `of_rows` are the rows' columns by name."""
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
    """Return the first steps by the columns of their results, and the second steps by name."""
    firsts = {partial: first for partial, first, _ in steps.values()}
    return firsts, {name: second for name, (*_, second) in steps.items()}
